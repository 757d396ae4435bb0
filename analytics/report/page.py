"""The report's page around its contents: two tabs that need no library."""

from __future__ import annotations

from string import Template

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>gamecast: $sessions</title>
<style>
  :root { --ink: #1d2733; --soft: #5d6b7a; --line: #e4e8ee; --good: #2e7d54; --bad: #c8473a; }
  body { margin: 0; background: #f6f7f9; color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
  main, header > div { max-width: 1080px; margin: 0 auto; padding: 0 24px; }
  header { color: white; background: var(--good); padding: 22px 0 18px; }
  header.broken { background: var(--bad); }
  header.unknown { background: #8a6100; }
  header h1 { margin: 2px 0; font-size: 27px; font-weight: 650; }
  header p { margin: 0; overflow-wrap: anywhere; }
  header small { opacity: .8; }
  .cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 18px 0 6px; }
  .card { background: white; border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px; }
  .card span { display: block; color: var(--soft); font-size: 13px; }
  .card b { font-size: 21px; font-weight: 650; }
  .card.bad b { color: var(--bad); }
  input[name=page] { position: absolute; opacity: 0; }
  .tabs { display: flex; gap: 6px; margin-top: 14px; border-bottom: 2px solid var(--line); }
  .tabs label { padding: 8px 16px; cursor: pointer; color: var(--soft); font-weight: 600; }
  section { display: none; background: white; border: 1px solid var(--line); border-top: 0;
    padding: 4px 24px 26px; margin-bottom: 40px; }
  #producer:checked ~ .tabs label[for=producer], #engineer:checked ~ .tabs label[for=engineer] {
    color: var(--ink); box-shadow: 0 2px 0 var(--ink); }
  input:focus-visible ~ .tabs label { outline: 1px dotted var(--soft); }
  #producer:checked ~ .producer, #engineer:checked ~ .engineer { display: block; }
  h2 { font-size: 19px; margin: 26px 0 6px; } h3 { font-size: 15px; margin: 18px 0 4px; }
  .scroll { overflow-x: auto; } table { border-collapse: collapse;
    min-width: 50%; font-size: 14px; margin: 6px 0 14px; }
  th { text-align: left; color: var(--soft); font-weight: 600; }
  th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
  th.number { text-align: right; padding-right: 24px; }
  td.number { text-align: right; font-variant-numeric: tabular-nums; padding-right: 24px; white-space: nowrap; }
  .more { color: var(--soft); margin-top: -8px; }
</style>
<script>$plotly</script></head>
<body><header class="$verdict"><div>
<small>gamecast analyze · $sessions</small><h1>$headline</h1><p>$headline_more</p></div></header>
<main><div class="cards">$cards</div>
<input type="radio" name="page" id="producer" checked><input type="radio" name="page" id="engineer">
<div class="tabs"><label for="producer">For producers</label><label for="engineer">For engineers</label></div>
<section class="producer">$producer</section><section class="engineer">$engineer</section></main>
<script>
  // A plot that was drawn while its page was hidden has no width.
  const show = () => document.querySelectorAll(".plotly-graph-div").forEach(each => Plotly.Plots.resize(each));
  document.querySelectorAll("input[name=page]").forEach(each => each.addEventListener("change", show));
  if (location.hash === "#engineer") {
    document.getElementById("engineer").checked = true;
    addEventListener("load", show);
  }
</script></body></html>
""")
