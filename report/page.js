"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.remove("no-js");

  // Arms: a toggle hides an arm in every figure of its group, so that one choice holds for all curves of the page.
  const figuresOf = (group) => all(".figure[data-group]").filter((figure) => figure.dataset.group === group);
  const show = (group, arm, shown) => {
    for (const figure of figuresOf(group)) {
      for (const part of all(".drawing .arm", figure)) if (part.dataset.arm === arm) part.classList.toggle("off", !shown);
      for (const button of all("[data-toggle]", figure)) {
        if (button.dataset.toggle === arm) button.setAttribute("aria-pressed", String(shown));
      }
    }
  };
  for (const group of new Set(all(".figure[data-group]").map((figure) => figure.dataset.group))) {
    const buttons = figuresOf(group).flatMap((figure) => all("[data-toggle]", figure));
    const arms = new Set(buttons.map((button) => button.dataset.toggle));
    const first = new Set(buttons.filter((button) => "first" in button.dataset).map((button) => button.dataset.toggle));
    const showOnly = (chosen) => arms.forEach((arm) => show(group, arm, chosen.has(arm)));
    for (const button of buttons) {
      button.addEventListener("click", () => show(group, button.dataset.toggle, button.getAttribute("aria-pressed") !== "true"));
    }
    for (const button of figuresOf(group).flatMap((figure) => all("[data-show]", figure))) {
      button.addEventListener("click", () => showOnly(button.dataset.show === "all" ? arms : first));
    }
    if (first.size && arms.size > first.size + 1) showOnly(first);
  }

  // Tables name arms; their marks are drawn here, because thousands of them would make the page heavy.
  for (const cell of all("[data-mark]")) {
    const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    swatch.setAttribute("class", "swatch");
    swatch.setAttribute("aria-hidden", "true");
    use.setAttribute("href", `#mark-${cell.dataset.mark}`);
    swatch.append(use);
    cell.prepend(swatch);
  }

  // Tables: a heading sorts its column; what is not known stays last in both directions.
  const unknown = new Set(["", "–"]);
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.sort ?? cell.dataset.mark ?? cell.textContent.trim();
    return unknown.has(value) ? "" : value;
  };
  const sortBy = (table, column, rising) => {
    const body = table.tBodies[0];
    const numeric = [...body.rows].every((row) => valueOf(row, column) === "" || !Number.isNaN(Number(valueOf(row, column))));
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
      return rising ? order : -order;
    };
    const rows = [...body.rows].sort((a, b) => compare(valueOf(a, column), valueOf(b, column)));
    body.append(...rows);
  };
  for (const table of all("table.sortable")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      head.querySelector(".sort").addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        sortBy(table, column, rising);
      });
    });
  }

  // Downloads: the numbers lie in the page, so no network is needed.
  for (const button of all("[data-download]")) {
    button.addEventListener("click", () => {
      const { file, csv } = JSON.parse(document.getElementById(`data-${button.dataset.download}`).textContent);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(["\ufeff", csv], { type: "text/csv;charset=utf-8" }));
      link.download = file;
      document.body.append(link);
      link.click();
      link.remove();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }

  // Commands: copied, or selected where the browser refuses.
  for (const button of all(".copy")) {
    const words = button.innerHTML;
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { button.innerHTML = words; }, 2000);
    });
  }

  // Paper has no clicks: print what is folded away, then fold it again.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    opened.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));

  // The contents follow the reader.
  const links = new Map(all(".contents a").map((link) => [link.getAttribute("href").slice(1), link]));
  if ("IntersectionObserver" in window) {
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        links.forEach((link) => link.removeAttribute("aria-current"));
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-10% 0px -80% 0px" });
    all("main > section").forEach((section) => observer.observe(section));
  }
})();
