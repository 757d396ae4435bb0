"""The page around a report's contents: its verdict on top, in light and dark, and on paper.

The report of an analysis has two parts behind radio buttons; that of a load test has one.

Colours of texts have a contrast of 4.5:1 or more on both grounds, those of bars and lines 3:1 or more.
"""

from __future__ import annotations

import html
from string import Template

_LIGHT = """color-scheme: light;
    --page: #f5f5f2; --card: #ffffff; --sunk: #ecece6; --line: #dcdcd4; --ink: #1b1f26; --soft: #5a606b;
    --accent: #3451c6; --bad: #b3261e; --cool: #2f719b; --warm: #a86a00; --hot: #c23b2e; --mid: #8a4fb5;
    --kept: #1f6b43; --broken: #a82b22; --unknown: #7a5600;"""
_DARK = """color-scheme: dark;
    --page: #121418; --card: #1a1d23; --sunk: #2a2f37; --line: #343a43; --ink: #e8eaed; --soft: #a9b0bc;
    --accent: #8ea6ff; --bad: #ff8a80; --cool: #6bb3dd; --warm: #e6ac4c; --hot: #ff8273; --mid: #c79af0;
    --kept: #1a5536; --broken: #7d231c; --unknown: #5c4200;"""

STYLE = (
    f":root {{ {_LIGHT} }}\n"
    f"  @media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}"
    """
  *, ::before, ::after { box-sizing: border-box; }
  body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
    overflow-wrap: anywhere; }
  main, header > div { max-width: 1000px; margin: 0 auto; padding: 0 clamp(12px, 3vw, 24px); }
  header { color: #ffffff; background: var(--unknown); padding: 20px 0 18px; print-color-adjust: exact; }
  header.kept { background: var(--kept); }
  header.broken { background: var(--broken); }
  header h1 { margin: 2px 0; font-size: clamp(21px, 5vw, 27px); font-weight: 650; line-height: 1.25; }
  header p { margin: 0; }
  .turns { margin: 8px 0 0; padding-left: 1.6em; font-weight: 600; }
  .cards { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 10px; margin: 18px 0 6px; }
  .cards div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 9px 13px; }
  .cards dt { color: var(--soft); font-size: 13px; }
  .cards dd { margin: 0; font-size: 20px; font-weight: 650; }
  .cards .bad dd { color: var(--bad); }
  @media (max-width: 640px) { .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
  section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
    padding: 4px clamp(12px, 3vw, 24px) 26px; margin-bottom: 40px; }
  .scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
  a { color: var(--accent); }
  h2, h3 { font-size: 19px; margin: 28px 0 6px; }
  p { margin: 8px 0; max-width: 75ch; }
  .scroll { overflow-x: auto; margin: 10px 0 16px; }
  table { border-collapse: collapse; width: max-content; font-size: 14px; overflow-wrap: break-word; }
  caption { text-align: left; color: var(--soft); font-weight: 600; padding-bottom: 4px; white-space: nowrap; }
  th, td { padding: 5px 18px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; text-align: left;
    max-width: min(44ch, 60vw); }
  thead th { color: var(--soft); white-space: nowrap; }
  th { font-weight: 600; } tbody th { font-weight: 500; }
  .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
  @media screen and (max-width: 640px) {
    table { width: 100%; font-size: 12px; overflow-wrap: anywhere; } caption, thead th { white-space: normal; }
    th, td { max-width: none; padding-right: 8px; } .number { white-space: normal; }
  }
  .more, figcaption, .unit, .legend { color: var(--soft); font-size: 13px; }
  .more { margin-top: -10px; }
  figure { margin: 14px 0 20px; break-inside: avoid; }
  .unit { margin: 0; }
  .legend { display: flex; flex-wrap: wrap; gap: 2px 16px; list-style: none; margin: 0 0 4px; padding: 0; }
  .swatch { width: 28px; height: 12px; margin-right: 5px; }
  svg.bars, svg.plot { display: block; overflow: visible; font-size: 13px; }
  svg.plot { width: calc(100% - 80px); margin: 4px 22px 4px 58px; }
  text { fill: var(--ink); unicode-bidi: isolate; font-variant-numeric: tabular-nums; }
  text.soft { fill: var(--soft); font-size: 12px; }
  text.value, text.strong { font-weight: 600; }
  .hit { fill: transparent; }
  g:hover > .track { fill: var(--line); }
  .track { fill: var(--sunk); } .cool { fill: var(--cool); } .warm { fill: var(--warm); } .hot { fill: var(--hot); }
  .grid { stroke: var(--line); stroke-width: 1; }
  .mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 4 4; }
  .tick { stroke: var(--ink); stroke-width: 2; }
  .turn { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 2 3; }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round;
    vector-effect: non-scaling-stroke; }
  .line.cool, .line.p50 { stroke: var(--cool); } .line.p95 { stroke: var(--mid); } .line.p99 { stroke: var(--hot); }
  .p50 { stroke-dasharray: 2 4; } .p95 { stroke-dasharray: 8 4; }
  .dot { fill: var(--card); stroke: var(--cool); stroke-width: 2; }
  circle.joins { fill: var(--cool); } circle.gaps { fill: none; stroke: var(--hot); stroke-width: 2; }
  @media print {
    section { border: 0; padding: 0; }
    .scroll { overflow: visible; }
    table { width: auto; overflow-wrap: anywhere; } caption, thead th { white-space: normal; }
    th, td { max-width: none; padding-right: 10px; }
    svg rect { print-color-adjust: exact; }
    h2, h3 { break-after: avoid; } tr { break-inside: avoid; }
  }"""
)

PARTS_STYLE = """
  .hidden, input[name=part] { position: absolute; width: 1px; height: 1px; overflow: hidden; opacity: 0; margin: 0; }
  fieldset { border: 0; margin: 14px 0 0; padding: 0; min-width: 0; position: relative; }
  .tabs { display: flex; gap: 4px; }
  .tabs label { padding: 8px clamp(10px, 3vw, 18px); cursor: pointer; color: var(--soft); font-weight: 600;
    border-radius: 8px 8px 0 0; border-bottom: 3px solid transparent; }
  section { display: none; border-top-left-radius: 0; }
  #producer:checked ~ .tabs label[for=producer], #engineer:checked ~ .tabs label[for=engineer] {
    color: var(--ink); background: var(--card); border-bottom-color: var(--accent); }
  #producer:focus-visible ~ .tabs label[for=producer], #engineer:focus-visible ~ .tabs label[for=engineer] {
    outline: 2px solid var(--accent); outline-offset: 2px; }
  fieldset:has(#producer:checked) ~ .producer, fieldset:has(#engineer:checked) ~ .engineer { display: block; }
  @media print {
    fieldset { display: none; }
    section { display: block; }
    section > h2 { position: static; width: auto; height: auto; opacity: 1; font-size: 22px; }
    section.engineer { break-before: page; }
  }"""

PARTS = Template("""<fieldset><legend class="hidden">Part of the report</legend>
<input type="radio" name="part" id="producer" checked><input type="radio" name="part" id="engineer">
<div class="tabs"><label for="producer">For producers</label><label for="engineer">For engineers</label></div>
</fieldset>
<section class="producer" aria-labelledby="producer-title"><h2 class="hidden" id="producer-title">For producers</h2>
$producer</section>
<section class="engineer" aria-labelledby="engineer-title"><h2 class="hidden" id="engineer-title">For engineers</h2>
$engineer</section>
<script>
  if (location.hash === "#engineer") document.getElementById("engineer").checked = true;
</script>""")

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>gamecast: $title</title>
<style>
  $style
</style></head>
<body><header class="$verdict"><div>
<p>$above</p><h1>$headline</h1><p>$below</p>$turns</div></header>
<main><dl class="cards">$cards</dl>
$contents</main></body></html>
""")
"""``verdict``: the class of the header, kept, broken or unknown; ``style``: `STYLE` and what a report adds to it."""


def card(title: str, value: str, *, bad: int = 0) -> str:
    """Return a figure for the top of the page; one that is bad stands out."""
    kind = ' class="bad"' if bad else ""
    return f"<div{kind}><dt>{html.escape(title)}</dt><dd>{html.escape(value)}</dd></div>"
