// Adds a button that copies a number. Without the script the number can be marked and copied by hand.
"use strict";
for (const code of document.querySelectorAll("code[data-tillgate-copy]:not([data-tillgate-ready])")) {
  if (!navigator.clipboard) break; // only on https and on this machine
  code.dataset.tillgateReady = "";
  const { tillgateCopy: copy, tillgateCopied: copied } = code.dataset;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "tillgate-copy";
  button.textContent = copy;
  button.setAttribute("aria-label", `${copy}: ${code.textContent}`);
  const said = document.createElement("span");
  said.className = "tillgate-said";
  said.setAttribute("role", "status");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    said.textContent = copied;
    setTimeout(() => { said.textContent = ""; }, 3000);
  });
  code.after(button, said);
}
