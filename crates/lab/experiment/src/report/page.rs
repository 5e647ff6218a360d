//! Page layout of a report: one self-contained file without scripts; light and dark mode.

use albacore_svg::escape;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--dim:#66707f;--page:#fff;--line:#dfe3e9}\
@media(prefers-color-scheme:dark){:root{--ink:#e8ebf0;--dim:#98a2b3;--page:#14181f;--line:#2c333f}}\
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:980px;margin:3rem auto;padding:0 1rem}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2.2rem}\
table{border-collapse:collapse;width:100%;font-size:.85rem}th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line)}\
th:first-child,td:first-child{text-align:left}.dim{color:var(--dim)}svg{width:100%;height:auto}\
summary{cursor:pointer;padding:.3rem 0}li{margin:.3rem 0}";

/// An HTML page with this title and `body`.
#[must_use]
pub fn report_page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width,initial-scale=1'><title>{title}</title>\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n{body}</html>\n"
    )
}
