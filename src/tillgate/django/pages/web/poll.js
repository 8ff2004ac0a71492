"use strict";
// Asks how the payment stands until it is settled, then goes on; after a bounded wait, to the page that says what happens next, if there is one.
(() => {
  const poll = JSON.parse(document.getElementById("tillgate-poll").textContent);
  const news = document.getElementById("tillgate-news");
  let asked = 0;
  const ask = async () => {
    asked += 1;
    try {
      const answer = await fetch(poll.statusUrl, { cache: "no-store", referrerPolicy: "no-referrer" });
      if (answer.ok && (await answer.json()).settled) {
        if (news) news.textContent = poll.settled;
        location.replace(poll.settledUrl);
        return;
      }
    } catch { /* the next one may get through */ }
    if (asked >= poll.times) {
      if (poll.tiredUrl) location.replace(poll.tiredUrl);
      return;
    }
    setTimeout(ask, poll.seconds * 1000);
  };
  setTimeout(ask, poll.seconds * 1000);
})();
