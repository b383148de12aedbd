"use strict";
// What the theme leaves open for readers with keys alone, and for readers whose pages are spoken.
addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.setAttribute("aria-level", "2");
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
  for (const icons of document.querySelectorAll(".content-icon-container")) {
    icons.setAttribute("role", "navigation");
    icons.setAttribute("aria-label", "This page as text");
  }
  // The corner of a table heads nothing.
  for (const head of document.querySelectorAll("th")) if (!head.textContent.trim()) head.setAttribute("role", "cell");

  // A table or a listing that scrolls sideways is a stop for Tab; one that fits is not.
  const reach = () => {
    for (const box of document.querySelectorAll("pre, .table-wrapper, .output.text_html")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", reach);
  document.fonts?.ready.then(reach);
  reach();
});
