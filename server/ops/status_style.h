// The style of the status page: light or dark as the reader's system is, for widths from 340
// pixels.
#pragma once

namespace spaid::server {

// The page's mark and icon, a sparse pattern, in colours that are visible in both themes.
inline constexpr char kStatusMark[] =
    "<svg class=\"mark\" viewBox=\"0 0 20 20\" width=\"22\" height=\"22\" aria-hidden=\"true\">"
    "<path d=\"M1 1h5v5H1zM7.5 7.5h5v5h-5zM14 14h5v5h-5z\"/>"
    "<path class=\"off\" d=\"M7.5 1h5v5h-5zM1 7.5h5v5H1zM14 7.5h5v5h-5zM7.5 14h5v5h-5z\"/></svg>";
inline constexpr char kStatusIcon[] =
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 20 20'%3E%3Cpath "
    "fill='%233b82f6' d='M1 1h5v5H1zM7.5 7.5h5v5h-5zM14 14h5v5h-5z'/%3E%3Cpath fill='%2393b4e8' "
    "d='M7.5 1h5v5h-5zM1 7.5h5v5H1zM14 7.5h5v5h-5zM7.5 14h5v5h-5z'/%3E%3C/svg%3E";

inline constexpr char kStatusStyle[] = R"css(
:root {
  color-scheme: light dark;
  --page: #f4f6f8; --card: #fff; --ink: #16202b; --soft: #566472; --line: #e1e6eb;
  --track: #e6eaef; --accent: #1d63d8; --good: #17743a; --warn: #8f5a00; --bad: #bf2330;
  --good-back: #e0f3e6; --warn-back: #fbeed3; --bad-back: #fbe3e4; --accent-back: #e3ecfb;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --card: #151b23; --ink: #e6edf3; --soft: #93a1af; --line: #27303a;
    --track: #27303a; --accent: #6aa9ff; --good: #56c271; --warn: #dfa83a; --bad: #ff7b76;
    --good-back: #16301f; --warn-back: #332711; --bad-back: #3a1b1d; --accent-back: #16283f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 0 1.25rem 2rem; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
header, main, footer { max-width: 78rem; margin: 0 auto; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .9rem; padding: 1.1rem 0 .9rem; }
h1 { display: flex; align-items: center; gap: .55rem; margin: 0; font-size: 1.35rem; letter-spacing: -.01em; }
h1 small { font-size: .85rem; font-weight: 400; color: var(--soft); letter-spacing: 0; }
h2 { margin: 1.7rem 0 .6rem; font-size: 1rem; }
h2 small { margin-left: .5rem; font-weight: 400; font-size: .85rem; color: var(--soft); }
h3 { margin: 0 0 .4rem; font-size: .85rem; color: var(--soft); font-weight: 600; }
.mark { fill: var(--accent); flex: none; }
.mark .off { opacity: .35; }
.facts { margin-left: auto; color: var(--soft); text-align: right; }
.soft, td small, .card small { color: var(--soft); }
small { font-size: .86em; }
.tag {
  display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .86em; font-weight: 600;
  white-space: nowrap; background: var(--track); color: var(--soft);
}
.good { background: var(--good-back); color: var(--good); }
.warn { background: var(--warn-back); color: var(--warn); }
.bad { background: var(--bad-back); color: var(--bad); }
.busy { background: var(--accent-back); color: var(--accent); }
.grid { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr)); }
.tiles { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem .95rem; min-width: 0; }
.tile b { display: block; font-size: 1.45rem; line-height: 1.25; font-weight: 650; letter-spacing: -.01em; }
.tile span { color: var(--soft); }
.tile small { display: block; }
.head { display: flex; flex-wrap: wrap; align-items: baseline; gap: .1rem .5rem; margin-bottom: .35rem; }
.head .tag { margin-left: auto; }
.card p { margin: .25rem 0 .1rem; overflow-wrap: anywhere; }
.card p.why { color: var(--bad); }
p.soft { margin: 1rem 0 .5rem; }
.pair { display: flex; justify-content: space-between; gap: 1rem; }
.bar { display: block; height: .45rem; border-radius: .3rem; background: var(--track); overflow: hidden; margin: .3rem 0; }
.bar i { display: block; height: 100%; background: var(--accent); border-radius: .3rem; }
.bar.full i { background: var(--warn); }
.table { padding: 0; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; font-size: .86em; color: var(--soft); white-space: nowrap; }
th, td { padding: .5rem .6rem; vertical-align: top; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { padding-left: .95rem; }
th:last-child, td:last-child { padding-right: .95rem; }
tr:last-child td { border-bottom: 0; }
td small { display: block; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.time { white-space: nowrap; }
td.progress { min-width: 11rem; }
td.result { min-width: 11rem; max-width: 22rem; overflow-wrap: anywhere; }
td.name { min-width: 10.5rem; max-width: 16rem; overflow-wrap: anywhere; }
.whole { white-space: nowrap; }
.id { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .8em; }
.curve { display: block; color: var(--accent); }
.curve path { fill: none; vector-effect: non-scaling-stroke; }
.curve .line { stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }
.curve .decades { stroke: var(--soft); stroke-opacity: .28; stroke-width: 1; }
.curve .end { fill: currentColor; }
.missed .curve { color: var(--warn); }
.none { padding: .8rem .95rem; color: var(--soft); }
footer { margin-top: 1.6rem; padding-top: .8rem; border-top: 1px solid var(--line); color: var(--soft); }
a { color: var(--accent); }
@media (max-width: 46rem) {
  body { padding: 0 .8rem 1.5rem; }
  .facts { margin-left: 0; text-align: left; width: 100%; }
  .tiles { grid-template-columns: 1fr 1fr; }
  .jobs thead { display: none; }
  .jobs tr { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); grid-auto-flow: row dense; padding: .55rem 0; border-bottom: 1px solid var(--line); }
  .jobs tr:last-child { border-bottom: 0; }
  .jobs td { border: 0; padding: .22rem .95rem; max-width: none; overflow-wrap: anywhere; }
  .jobs td[data-head]::before {
    content: attr(data-head); display: block; font-size: .78em; color: var(--soft);
  }
  .jobs td.name, .jobs td.progress, .jobs td.result, .jobs td.wide { grid-column: 1 / -1; }
  .jobs td.number { text-align: left; }
  .jobs td:empty { display: none; }
}
)css";

}  // namespace spaid::server
