// Pages of the project's source files, highlighted, with an anchor for each line: #L42 or #L42-L47.
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, posix, resolve } from 'node:path'
import highlighter from 'highlight.js'
import { root } from './chapters'

const folders = ['assets', 'chapters', 'common', 'docs', 'tests']
const files = ['.ci/run', 'CMakeLists.txt', 'CMakePresets.json', 'LICENSE', 'learn']
const languages: Record<string, string> = {
  cmake: 'cmake', cpp: 'cpp', hpp: 'cpp', json: 'json', mjs: 'javascript', py: 'python', sh: 'bash', ts: 'typescript',
  txt: 'cmake', vue: 'xml',
}
const hidden = /^(node_modules|package-lock\.json|fixtures|__pycache__|\.temp|.*\.md)$/

// Whether the site has a page for a file or folder of the project.
export function isShown(file: string): boolean {
  const parts = file.split('/')
  return (files.includes(file) || folders.includes(parts[0])) && !parts.some(part => hidden.test(part)) &&
    existsSync(resolve(root, file))
}

// The address of its page, relative to the site.
export function sourceAddress(file: string): string {
  const isFolder = statSync(resolve(root, file)).isDirectory()
  return `/source/${file}${isFolder ? '/index' : ''}.html`
}

const escape = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

// Lines of highlighted code. Elements that span lines are closed and opened again at each end.
function highlightedLines(code: string, language: string): string[] {
  const html = language ? highlighter.highlight(code, { language }).value : escape(code)
  const open: string[] = []
  return html.split('\n').map((line) => {
    const prefix = open.join('')
    for (const tag of line.match(/<span[^>]*>|<\/span>/g) ?? []) {
      if (tag === '</span>') open.pop()
      else open.push(tag)
    }
    return prefix + line + '</span>'.repeat(open.length)
  })
}

const link = (file: string, text: string, base: string, attributes = '') =>
  `<a href="${base}${sourceAddress(file).slice(1)}"${attributes}>${escape(text)}</a>`

// The files and folders of a folder, or of the project.
function shownNames(folder: string): string[] {
  if (folder === '') return [...folders, ...files]
  return readdirSync(resolve(root, folder)).filter(name => !hidden.test(name)).sort()
}

function folderLinks(folder: string, base: string, current?: string): string {
  return shownNames(folder).map((name) => {
    const file = posix.join(folder, name)
    const isFolder = statSync(resolve(root, file)).isDirectory()
    const attributes = file === current ? ' aria-current="page"' : ''
    return `<li>${link(file, isFolder ? `${name}/` : name, base, attributes)}</li>`
  }).join('\n')
}

function page(file: string, base: string, content: string): string {
  const parts = file.split('/')
  const crumbs = parts.map((part, i) => i + 1 === parts.length ? `<h1>${escape(part)}</h1>`
    : link(parts.slice(0, i + 1).join('/'), part, base))
  const slug = /^chapters\/(\d\d_\w+)/.exec(file)?.[1]
  const back = slug ? `<a href="${base}${slug}.html">Chapter ${slug.slice(0, 2)}</a>` : ''
  return `<!doctype html>
<html lang="en-US">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${escape(file)} · A transformer in C++</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${base}source/style.css">
<script src="${base}source/lines.js"></script>
</head>
<body>
<header><a class="home" href="${base}">A transformer in C++</a>${back}</header>
<nav class="files" aria-label="Files"><ul>
${folderLinks(parts.slice(0, -1).join('/'), base, file)}
</ul></nav>
<nav class="crumbs" aria-label="Folders">${crumbs.join(' / ')}</nav>
<main>
${content}
</main>
</body>
</html>
`
}

const imageTypes: Record<string, string> = { png: 'image/png', svg: 'image/svg+xml' }

function filePage(file: string, base: string): string {
  const ending = posix.extname(file).slice(1)
  if (ending in imageTypes) {
    const data = readFileSync(resolve(root, file)).toString('base64')
    return page(file, base, `<img alt="${escape(file)}" src="data:${imageTypes[ending]};base64,${data}">`)
  }
  const text = readFileSync(resolve(root, file), 'utf8')
  if (text.includes('\0') || text.length > 400_000) {
    const size = statSync(resolve(root, file)).size.toLocaleString('en-US')
    return page(file, base, `<p class="bytes">This file has ${size} bytes, which are not shown here.</p>`)
  }
  const language = languages[ending] ?? (text.startsWith('#!/usr/bin/env bash') ? 'bash' : '')
  const rows = highlightedLines(text.replace(/\n$/, ''), language).map((line, i) =>
    `<div class="line" id="L${i + 1}"><a href="#L${i + 1}" tabindex="-1">${i + 1}</a><code>${line || ' '}</code></div>`)
  return page(file, base, `<div class="code" tabindex="0" role="region" aria-label="Source code">\n${rows.join('\n')}\n</div>`)
}

// Writes the pages of all files that the pages of the book may link to into the folder `site`.
export function writeSources(site: string, base: string) {
  const write = (address: string, text: string) => {
    const path = resolve(site, `.${address}`)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  const visit = (path: string) => {
    if (!statSync(resolve(root, path)).isDirectory()) {
      write(sourceAddress(path), filePage(path, base))
      return
    }
    write(sourceAddress(path), page(path, base, `<ul class="folder">\n${folderLinks(path, base)}\n</ul>`))
    for (const name of shownNames(path)) visit(`${path}/${name}`)
  }
  for (const path of [...folders, ...files]) visit(path)
  for (const name of ['style.css', 'lines.js']) {
    write(`/source/${name}`, readFileSync(resolve(root, 'docs/.vitepress/source', name), 'utf8'))
  }
}
