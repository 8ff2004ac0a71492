"use strict";
// Takes the token that the dashboard hands over (App Bridge), and shows what the service tells to whoever holds it.
(() => {
  const dashboards = JSON.parse(document.getElementById("dashboards").textContent);
  const [status, content, test, find, text] = ["status", "content", "test", "find", "q"].map((id) => document.getElementById(id));
  let token = "";
  const show = async (query, body) => {
    status.textContent = status.dataset.asking;
    test.disabled = true;
    try {
      const headers = { Authorization: `Bearer ${token}`, "Saleor-Api-Url": content.dataset.apiUrl };
      const answer = await fetch(content.dataset.url + query, { method: "POST", headers, body, cache: "no-store" });
      const said = await answer.text();
      if (answer.ok) content.innerHTML = said; // our own template, which has escaped what others wrote
      status.textContent = answer.ok ? "" : said;
    } catch {
      status.textContent = status.dataset.failed;
    }
    test.hidden = find.hidden = test.disabled = false;
  };
  window.addEventListener("message", (event) => {
    if (event.source !== window.parent || !dashboards.includes(event.origin)) return;
    const { type, payload } = event.data ?? {};
    if (!["handshake", "tokenRefresh"].includes(type) || typeof payload?.token !== "string") return;
    const isFirst = !token;
    token = payload.token;
    if (isFirst) show("");
  });
  test.addEventListener("click", () => show("?test=1"));
  const search = async () => {
    await show("", new URLSearchParams({ q: text.value }));
    document.getElementById("found")?.scrollIntoView();
  };
  find.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  content.addEventListener("click", (event) => {
    const button = event.target.closest("[data-find]");
    if (!button) return;
    text.value = button.dataset.find;
    search();
  });
  for (const origin of dashboards) {
    window.parent.postMessage({ type: "notifyReady", payload: { actionId: crypto.randomUUID?.() ?? String(Date.now()) } }, origin);
  }
})();
