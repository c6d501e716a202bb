// Opens every SVG of assets/ in Chromium: each text has a contrast of at least 4.5 : 1 with what is
// painted under its middle (WCAG 2.1, 1.4.3). The browser applies style sheets, transforms and the
// order of painting; an attribute that a style rule overrides is found.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { launch, root, serve } from './site.mjs'

const least = 4.5

// In the page: the texts, and how much each stands out.
function readTexts() {
  const channels = color => (/^rgba?\(/.test(color) ? color.match(/[\d.]+/g).map(Number) : null)
  const luminance = rgb => rgb.slice(0, 3)
    .map(c => c / 255).map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y)
    return (light + 0.05) / (dark + 0.05)
  }
  // The color of the topmost filled shape at a point. The frames of an animation lie above each other.
  const groundAt = (x, y, frame) => {
    for (const element of document.elementsFromPoint(x, y)) {
      const other = element.closest('.f')
      if (element.closest('text') || element === document.documentElement || (other && other !== frame)) continue
      if (element.tagName === 'image') return null
      const { fill, fillOpacity, opacity } = getComputedStyle(element)
      const color = channels(fill)
      if (color && (color[3] ?? 1) * fillOpacity * opacity > 0.5) return color
    }
    return [255, 255, 255]
  }
  const leaves = [...document.querySelectorAll('text, tspan')]
    .filter(text => text.textContent.trim() && !text.querySelector('tspan'))
  return leaves.map((text) => {
    const box = text.getBoundingClientRect()
    const ground = groundAt(box.x + box.width / 2, box.y + box.height / 2, text.closest('.f'))
    const color = channels(getComputedStyle(text).fill)
    return { text: text.textContent.trim(), contrast: ground && color ? contrast(color, ground) : null }
  })
}

const files = ['.', 'diagrams'].flatMap(folder => readdirSync(join(root, 'assets', folder))
  .filter(name => name.endsWith('.svg')).map(name => join(folder, name)))
const server = await serve({ '/': join(root, 'assets') })
const browser = await launch()
const page = await browser.newPage({ viewport: { width: 1400, height: 1400 } })
let count = 0, problems = 0
for (const file of files.sort()) {
  await page.goto(`${server.origin}/${file}`)
  const texts = await page.evaluate(readTexts)
  count += texts.length
  const faint = texts.filter(({ contrast }) => contrast !== null && contrast < least)
  if (faint.length === 0) continue
  problems += faint.length
  const worst = faint.reduce((a, b) => (a.contrast < b.contrast ? a : b))
  console.log(`assets/${file}: ${faint.length} of ${texts.length} texts are below ${least} : 1; "${worst.text}" has ${worst.contrast.toFixed(2)}`)
}
await browser.close()
server.close()
console.log(`${count} texts in ${files.length} figures, ${problems} of them too faint`)
process.exit(problems > 0 || count < 1000 ? 1 : 0)
