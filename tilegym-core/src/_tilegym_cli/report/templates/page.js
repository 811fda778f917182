"use strict";
// Filters and sorting. The page is whole without it; the state of both is kept in the address, after "#".
(() => {
  const form = document.querySelector("#filters");
  if (!form) return;
  const table = document.querySelector("#speed-table");
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  const items = [...document.querySelectorAll("[data-op], [data-device]")];
  const status = document.querySelector("#shown");
  const empty = document.querySelector("#nothing");
  const original = [...body.rows];
  const collator = new Intl.Collator(undefined, { numeric: true });

  const state = () => {
    const found = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) found.set(name, value);
    if (!form.elements.peers.checked) found.set("peers", "no");
    else found.delete("peers");
    const sorted = headers.find((header) => header.hasAttribute("aria-sort"));
    if (sorted) found.set("sort", `${sorted.dataset.key}-${sorted.getAttribute("aria-sort")}`);
    return found;
  };

  const remember = (replace) => {
    const text = `#?${state()}`;
    if (text === (location.hash || "#?")) return;
    if (replace) history.replaceState(null, "", text);
    else history.pushState(null, "", text);
  };

  const filter = () => {
    const words = form.elements.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const selects = [...form.querySelectorAll("select")].filter((select) => select.value);
    for (const item of items) {
      const { dataset } = item;
      const chosen = selects.every(({ name, value }) => !(name in dataset) || dataset[name] === value);
      const peer = "peer" in dataset && !form.elements.peers.checked;
      const text = item.parentElement === body && words.length ? item.textContent.toLowerCase() : "";
      item.toggleAttribute("hidden", !chosen || peer || (text && !words.every((word) => text.includes(word))));
    }
    const count = original.filter((row) => !row.hidden).length;
    status.textContent = `${count} of ${original.length} measurements`;
    empty.hidden = count > 0;
  };

  const value = (row, column, numeric) => {
    const cell = row.cells[column];
    if (!numeric) return cell.textContent.trim();
    return cell.dataset.value ? Number(cell.dataset.value) : null;
  };

  const sort = (header, direction) => {
    for (const other of headers) other.removeAttribute("aria-sort");
    if (!header) return void body.append(...original);
    header.setAttribute("aria-sort", direction);
    const column = header.cellIndex;
    const numeric = "numeric" in header.dataset;
    const sign = direction === "ascending" ? 1 : -1;
    const rows = original.map((row) => [value(row, column, numeric), row]);
    rows.sort(([one], [other]) => {
      if (one === null || other === null) return (one === null) - (other === null); // what has no value is last
      return sign * (numeric ? one - other : collator.compare(one, other));
    });
    body.append(...rows.map(([, row]) => row));
  };

  const restore = () => {
    if (location.hash && !location.hash.startsWith("#?")) return; // a place on the page
    const wanted = new URLSearchParams(location.hash.slice(2));
    for (const field of form.querySelectorAll("select, input[type=search]")) {
      field.value = wanted.get(field.name) ?? "";
      if (field.selectedIndex === -1) field.value = ""; // no such op here
    }
    form.elements.peers.checked = wanted.get("peers") !== "no";
    const [, key, direction] = /^(.+)-(ascending|descending)$/.exec(wanted.get("sort") ?? "") ?? [];
    sort(headers.find((header) => header.dataset.key === key), direction);
    filter();
  };

  for (const header of headers) {
    header.querySelector("button").addEventListener("click", () => {
      const first = header.dataset.first ?? "ascending";
      const second = first === "ascending" ? "descending" : "ascending";
      sort(header, header.getAttribute("aria-sort") === first ? second : first);
      remember(false);
    });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    filter();
    remember(false);
  });
  form.elements.find.addEventListener("input", () => {
    filter();
    remember(true); // no step back for every letter
  });
  form.querySelector("button").addEventListener("click", () => {
    form.reset();
    sort();
    filter();
    remember(false);
  });
  addEventListener("popstate", restore);
  form.hidden = false;
  restore();
})();
