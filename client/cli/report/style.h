// The style of a report: light or dark as the reader's system is, for widths from 340 pixels, and
// for paper.
#pragma once

namespace spaid::cli {

// Colours of curves are Okabe and Ito's, told apart by the colour-blind, too, without their yellow,
// which white swallows; the second four are broken lines. No "<" and no "&": the page is XML.
inline constexpr char kReportStyle[] = R"css(
:root {
  color-scheme: light dark;
  --page: #f4f6f8; --card: #fff; --ink: #16202b; --soft: #566472; --line: #e1e6eb; --grid: #e8ecf0;
  --accent: #0072b2; --good: #17743a; --warn: #8f5a00; --bad: #bf2330;
  --good-back: #e0f3e6; --warn-back: #fbeed3; --bad-back: #fbe3e4; --track: #e6eaef; --rest: #b9c2cb;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b3568f; --c4: #3a96cf; --c5: #c98500; --c6: #16202b; --c7: #8c6d46;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --card: #151b23; --ink: #e6edf3; --soft: #93a1af; --line: #27303a; --grid: #222b35;
    --accent: #56b4e9; --good: #56c271; --warn: #dfa83a; --bad: #ff7b76;
    --good-back: #16301f; --warn-back: #332711; --bad-back: #3a1b1d; --track: #27303a; --rest: #4a5663;
    --c0: #4aa3df; --c1: #f0843c; --c2: #22c197; --c3: #e08fc0; --c4: #8fd0f5; --c5: #f0b73c; --c6: #e6edf3; --c7: #c9a678;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 0 1.25rem 2rem; background: var(--page); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
header, main, footer { max-width: 72rem; margin: 0 auto; }
header { padding: 1.5rem 0 1rem; }
h1 { display: flex; align-items: center; gap: .6rem; margin: 0; font-size: 1.6rem; line-height: 1.25; letter-spacing: -.015em; overflow-wrap: anywhere; }
header p { margin: .35rem 0 0; }
.lead { font-size: 1.08rem; max-width: 52rem; }
h2 { margin: 2.2rem 0 .3rem; font-size: 1.15rem; letter-spacing: -.01em; }
h3 { margin: 0 0 .5rem; font-size: .92rem; font-weight: 600; }
p { margin: .3rem 0 .8rem; max-width: 54rem; }
.soft, .note { color: var(--soft); }
.note { font-size: .9em; margin: .5rem 0 0; }
.mark { fill: var(--accent); flex: none; width: 26px; height: 26px; }
.mark .off { opacity: .35; }
.tiles { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); }
.pair { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); margin-bottom: .75rem; }
.pair.top { align-items: start; }
.planes { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(min(14rem, 100%), 1fr)); align-content: start; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .85rem 1rem; min-width: 0; margin: 0; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; font-weight: 650; letter-spacing: -.01em; }
.tile span, .tile small { color: var(--soft); display: block; }
.tile small { font-size: .88em; }
main > .card, main > figure { margin-bottom: .75rem; }
ul.says { margin: 0; padding: 0 0 0 1.1rem; }
ul.says li { margin: .3rem 0; overflow-wrap: anywhere; }
.table { padding: 0; overflow-x: auto; margin-bottom: .75rem; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; font-size: .88em; color: var(--soft); white-space: nowrap; }
th, td { padding: .38rem .6rem; vertical-align: top; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { padding-left: 1rem; }
th:last-child, td:last-child { padding-right: 1rem; }
tbody tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.name { white-space: nowrap; }
td.why { overflow-wrap: anywhere; min-width: 14rem; color: var(--soft); }
tr.best td { background: var(--good-back); font-weight: 600; }
.facts td { overflow-wrap: anywhere; }
.facts td:first-child { padding-left: 0; }
.facts td:first-child { color: var(--soft); white-space: nowrap; width: 1%; }
.facts td.warn { color: var(--warn); } .facts td.bad { color: var(--bad); }
.tag { display: inline-block; padding: 0 .5rem; border-radius: 1rem; font-size: .86em; font-weight: 600; white-space: nowrap; background: var(--track); color: var(--soft); }
.tag.good { background: var(--good-back); color: var(--good); }
.tag.bad { background: var(--bad-back); color: var(--bad); }
tr.best .tag.good { background: none; padding: 0; }
ol.commands, ul.commands { margin: 0; padding-left: 2.2rem; }
.commands li { margin: .4rem 0; padding-left: .2rem; }
code span { display: inline-block; max-width: 100%; }
code { font: .86em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
li code { display: block; color: var(--soft); }
.legend { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(25rem, 100%), 1fr)); gap: .1rem 1.2rem; list-style: none; margin: 0; padding: 0; }
.legend li { display: flex; align-items: baseline; gap: .5rem; }
.legend b { min-width: 1.1rem; text-align: right; }
.legend svg { width: 26px; height: 8px; flex: none; align-self: center; }
.legend small { color: var(--soft); margin-left: auto; white-space: nowrap; }
.keys { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .6rem 0 0; color: var(--soft); font-size: .9em; }
.keys span { display: inline-flex; align-items: center; gap: .4rem; }
.keys svg { width: 14px; height: 14px; }
svg { display: block; width: 100%; height: auto; overflow: visible; font-size: 12px; }
figure svg { max-width: 32rem; margin: 0 auto; }
svg text { fill: var(--ink); }
svg .soft { fill: var(--soft); }
.grid { stroke: var(--grid); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.one { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; }
.target { stroke: var(--soft); stroke-width: 1.3; stroke-dasharray: 7 4; }
.bar { fill: var(--c0); } .bar.second { fill: var(--c1); }
.spy { max-width: 25rem; border: 1px solid var(--line); margin: 0 auto; overflow: hidden; }
.spy path { fill: none; stroke: var(--c0); stroke-width: 1; shape-rendering: crispEdges; }
.spy .dots path { stroke-width: .86; shape-rendering: auto; }
.shade0 { stroke-opacity: .3; } .shade1 { stroke-opacity: .46; } .shade2 { stroke-opacity: .63; } .shade3 { stroke-opacity: .81; }
.keys rect { fill: var(--c0); }
.keys .shade0 { fill-opacity: .3; } .keys .shade1 { fill-opacity: .46; } .keys .shade2 { fill-opacity: .63; } .keys .shade3 { fill-opacity: .81; }
.keys rect.second { fill: var(--c1); }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.curve.rest { stroke: var(--rest); stroke-width: 1; }
.curve.c4, .curve.c5, .curve.c6, .curve.c7 { stroke-dasharray: 7 4; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.end { fill: var(--card); stroke-width: 1.5; }
.full { stroke: var(--card); stroke-width: .5; }
.full.c0 { fill: var(--c0); } .full.c1 { fill: var(--c1); }
svg text.rank { stroke: none; font-weight: 700; }
text.rank.c0 { fill: var(--c0); } text.rank.c1 { fill: var(--c1); } text.rank.c2 { fill: var(--c2); } text.rank.c3 { fill: var(--c3); }
text.rank.c4 { fill: var(--c4); } text.rank.c5 { fill: var(--c5); } text.rank.c6 { fill: var(--c6); } text.rank.c7 { fill: var(--c7); }
.whisker { stroke: var(--soft); stroke-width: 1.3; }
.box { fill: var(--c0); fill-opacity: .35; stroke: var(--c0); stroke-width: 1; }
.median { stroke: var(--ink); stroke-width: 2; }
footer { margin-top: 2rem; padding-top: .8rem; border-top: 1px solid var(--line); color: var(--soft); }
@media (max-width: 40rem) {
  body { padding: 0 .8rem 1.5rem; }
  .tiles { grid-template-columns: 1fr 1fr; }
  h1 { font-size: 1.3rem; }
  th, td { padding: .35rem .45rem; }
  .table { font-size: .92em; }
  .legend small { white-space: normal; text-align: right; }
}
@media print {
  :root {
    color-scheme: light;
    --page: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #ccc; --grid: #ddd; --good-back: #fff; --track: #fff; --bad-back: #fff; --rest: #aaa;
    --accent: #0072b2; --good: #17743a; --warn: #8f5a00; --bad: #bf2330;
    --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b3568f; --c4: #3a96cf; --c5: #c98500; --c6: #000; --c7: #8c6d46;
  }
  body { padding: 0; font-size: 10px; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .pair { grid-template-columns: 1fr 1fr; }
  .table { overflow: visible; }
  th, td { padding: .2rem .35rem; }
  .card, tr, li { break-inside: avoid; }
  .table { break-inside: auto; }
  thead { display: table-header-group; }
  h2 { break-after: avoid; }
}
)css";

}  // namespace spaid::cli
