"use strict";
// Asks how the payment stands until it is settled, then goes on; after a bounded wait, to the page that says what happens next, if there is one.
(() => {
  const poll = JSON.parse(document.getElementById("tillgate-poll").textContent);
  const news = document.getElementById("tillgate-news");
  let asked = 0;
  const wait = () => setTimeout(ask, asked < poll.quick ? 1000 : poll.seconds * 1000);
  const ask = async () => {
    const url = asked ? poll.statusUrl : poll.firstUrl;
    asked += 1;
    try {
      const answer = await fetch(url, { cache: "no-store", referrerPolicy: "no-referrer" });
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
    wait();
  };
  wait();
})();
