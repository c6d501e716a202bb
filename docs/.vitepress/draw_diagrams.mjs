// Draws the Mermaid blocks of all pages into assets/diagrams. Needs Chromium.
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'

const docs = resolve(dirname(fileURLToPath(import.meta.url)), '..')
const output = resolve(docs, '../assets/diagrams')
const packages = createRequire(import.meta.url)

// The page's own font, so that the boxes fit their text, and its colors: those of the site's theme.
const font = resolve(docs, 'node_modules/vitepress/dist/client/theme-default/fonts/inter-roman-latin.woff2')
const html = `<style>@font-face {
  font-family: Inter;
  font-weight: 100 900;
  src: url(data:font/woff2;base64,${readFileSync(font).toString('base64')});
}</style><p style="font: 16px Inter">loads the font</p>`

// Replaces Mermaid's own style, so that the colors follow the page's.
const style = `
  .flowchart { font: 16px Inter, sans-serif; }
  .flowchart text { fill: var(--diagram-text, #2b313b); }
  .node .label { text-anchor: middle; }
  .node .label-container { fill: var(--diagram-box, #f3f5f9); stroke: var(--diagram-line, #7b8494); }
  .cluster rect { fill: none; stroke: var(--diagram-frame, #c8ced9); }
  .edgeLabel .background { fill: var(--diagram-background, #ffffff); }
  .flowchart-link { fill: none; stroke: var(--diagram-line, #7b8494); stroke-width: 1.25px; }
  .marker { fill: var(--diagram-line, #7b8494); stroke: var(--diagram-line, #7b8494); }
`

const config = {
  startOnLoad: false,
  theme: 'base',
  fontFamily: 'Inter, sans-serif',
  htmlLabels: false,
  deterministicIds: true,
  flowchart: {
    htmlLabels: false,
    padding: 10,
    nodeSpacing: 22,
    rankSpacing: 30,
    subGraphTitleMargin: { top: 2, bottom: 8 },
    useMaxWidth: false,
    wrappingWidth: 300,
  },
}

function mermaidBlocks(page) {
  const text = readFileSync(resolve(docs, page), 'utf8')
  return [...text.matchAll(/^```mermaid\n(.*?)^```/gms)].map(block => block[1].trim())
}

// Mermaid takes a lone + for a list, and draws circles as small as their text.
const withSpaces = source => source.replace(/\(\("(.)"\)\)/g, '(("\u200b\u2002$1\u2002\u200b"))')

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
const tab = await browser.newPage()
await tab.setContent(html)
await tab.evaluate(() => document.fonts.ready)
await tab.addScriptTag({ path: packages.resolve('mermaid/dist/mermaid.min.js') })
await tab.evaluate(config => globalThis.mermaid.initialize(config), config)

rmSync(output, { recursive: true, force: true })
mkdirSync(output, { recursive: true })
for (const page of readdirSync(docs).filter(name => name.endsWith('.md')).sort()) {
  for (const [index, source] of mermaidBlocks(page).entries()) {
    const name = `${page.replace('.md', '')}_${index + 1}`
    const draw = ([name, source]) => globalThis.mermaid.render(`diagram_${name}`, source).then(drawing => drawing.svg)
    const svg = await tab.evaluate(draw, [name, withSpaces(source)])
    const hash = createHash('sha256').update(source).digest('hex').slice(0, 16)
    writeFileSync(resolve(output, `${name}.svg`), svg
      .replace('<svg', `<svg data-source="${hash}"`)
      .replace(/<style>.*?<\/style>/s, `<style>${style}</style>`) + '\n')
    console.log(`assets/diagrams/${name}.svg`)
  }
}
await browser.close()
