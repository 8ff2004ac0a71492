"use strict";
// On pages where a payment method is chosen: tells an iPad from a Mac, and copies the page's link for another browser.
(() => {
  if (navigator.userAgent.includes("Macintosh") && navigator.maxTouchPoints > 1) {
    document.cookie = "tillgate_touch=1; path=/; SameSite=Lax";
  }
  const copy = document.getElementById("tillgate-copy");
  if (!copy) return;
  const link = document.getElementById("tillgate-link");
  const news = document.getElementById("tillgate-copied");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(link.value);
    } catch { // apps' browsers often lack it
      link.select();
      if (!document.execCommand("copy")) return;
    }
    news.textContent = copy.dataset.copied;
  });
})();
