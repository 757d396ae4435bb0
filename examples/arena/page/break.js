// The buttons that break things, and what the server says of what they broke.
const shown = new Map();

export function offerBreaking(kinds) {
  document.getElementById("break").hidden = kinds.length === 0;
  for (const button of document.querySelectorAll("#break button")) {
    button.addEventListener("click", async () => {
      button.disabled = true;
      const response = await fetch(`faults/${button.dataset.kind}`, { method: "POST" });
      if (response.ok) showBroken(await response.json());
      else button.nextElementSibling.textContent = await response.text();
    });
  }
}

export function showBroken(faults) {
  for (const [kind, fault] of Object.entries(faults)) {
    const isBack = fault.down_s !== null;
    const button = document.querySelector(`#break [data-kind="${kind}"]`);
    button.disabled = !isBack;
    button.parentElement.className = isBack ? "back" : "down";
    const lost = `${fault.lost} event${fault.lost === 1 ? "" : "s"} lost`;
    const end = isBack ? `; back after ${fault.down_s.toFixed(1)} s; ${lost}` : " …";
    button.nextElementSibling.textContent = `${fault.what} ${fault.how} ${fault.ago_s} s ago${end}`;
    announce(kind, isBack ? `${fault.what} is back; ${lost}` : `${fault.what} ${fault.how}`);
  }
}

// Screen readers hear of each change once, and not how the seconds go by.
function announce(kind, text) {
  if (shown.get(kind) === text) return;
  shown.set(kind, text);
  document.getElementById("broken").textContent = text;
}
