// Joins the pages of the built site into one, build/site/book.html, for ./learn site --pdf: the walk first, then
// the sidebar's order. Links between pages lead to their places in the book, and others to the site.
// Usage: node docs/.vitepress/print_book.mjs SITE
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const site = process.argv[2]
const read = name => readFileSync(join(site, `${name}.html`), 'utf8')
const start = read('walk_through')
const links = [...start.matchAll(/<a class="VPLink link link"[^>]*href="[^"]*\/(\w+)\.html"[^>]*>(?:<!--.*?-->)*<p[^>]*>(.*?)<\/p>/g)]
if (links.length < 20) throw new Error(`the sidebar of ${site}/walk_through.html has ${links.length} links`)
const titles = new Map([['walk_through', ''], ...links.map(([, name, title]) => [name, title])])

// The address of a page, with or without an anchor: its place in the book.
const inBook = (name, anchor) => `href="#${name}${anchor ? `--${anchor}` : ''}"`

function contentOf(name) {
  const main = /<main class="main"[^>]*>([\s\S]*?)<\/main>/.exec(read(name))
  if (!main) throw new Error(`${name}.html has no main part`)
  const content = main[1]
    .replace(/\b(id|aria-labelledby|for)="([^"]*)"/g, `$1="${name}--$2"`)
    .replace(/href="#([^"]*)"/g, (_, anchor) => inBook(name, anchor))
    .replace(/url\(#([^)]*)\)/g, `url(#${name}--$1)`)
    .replace(/href="[^":]*?(\w+)\.html(?:#([^"]*))?"/g, (link, page, anchor) => titles.has(page) ? inBook(page, anchor) : link)
    .replace(/ loading="lazy"/g, '')
  return `<section class="chapter" id="${name}">${content}</section>`
}

const contents = [...titles].map(([name, title]) => `<li><a href="#${name}">${title}</a></li>`).join('\n')
const head = /<head>([\s\S]*?)<\/head>/.exec(start)[1].replace(/<script[\s\S]*?<\/script>/g, '').replace(/<link rel="modulepreload"[^>]*>/g, '')
writeFileSync(join(site, 'book.html'), `<!doctype html>
<html lang="en"><head>${head}
<style>
  @page { size: A4; margin: 15mm 17mm; }
  body { zoom: 0.72; }
  .chapter { break-before: page; }
  .vp-doc :is(pre, pre code) { white-space: pre-wrap !important; overflow: visible !important; }
  .vp-doc :is(h2, h3) { margin-top: 24px; }
  .header-anchor { display: none; }
</style></head>
<body><div class="vp-doc"><h1>Transformer from scratch</h1><ol style="list-style: none; padding: 0">${contents}</ol></div>
${[...titles.keys()].map(contentOf).join('\n')}
</body></html>
`)
console.log(`${titles.size} pages`)
