import type MarkdownIt from 'markdown-it'
import { defineConfig } from 'vitepress'
import type { Plugin } from 'vite'
import { readChapters, root, sidebar } from './chapters'
import { captionsPlugin } from './markdown/captions'
import { diagramsPlugin } from './markdown/diagrams'
import { imagesPlugin } from './markdown/images'
import { githubSlug, linksPlugin } from './markdown/links'
import { livePlugin } from './markdown/live'
import { mapPlugin } from './markdown/map'
import { mathPlugin } from './markdown/math'
import { playgroundsPlugin } from './markdown/playgrounds'
import { predictionsPlugin } from './markdown/predictions'
import { writeSources } from './sources'

const chapters = readChapters()
const base = process.env.SITE_BASE || '/'

// README.md has no node_modules beside it: it takes its packages from docs/.
const packagesOfReadme: Plugin = {
  name: 'packages-of-readme',
  enforce: 'pre',
  resolveId(id, importer) {
    if (importer !== `${root}/README.md` || !/^vue\b/.test(id)) return
    return this.resolve(id, `${root}/docs/package.json`, { skipSelf: true })
  },
}

// Every browser that the site supports reads woff2: no other formats of KaTeX's fonts.
const fontsOfKatex: Plugin = {
  name: 'fonts-of-katex',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith('/katex.min.css')) return
    return code.replace(/,url\([^)]*\.(woff|ttf)\) format\("\w+"\)/g, '')
  },
}

export default defineConfig({
  title: 'A transformer in C++',
  description: 'Build a decoder-only transformer, from a mask to a trained model.',
  lang: 'en-US',
  base,
  head: [['link', { rel: 'icon', href: 'data:,' }]],

  srcDir: '..',
  srcExclude: ['assets/**', 'build*/**', 'chapters/**', 'common/**', 'tests/**'],
  rewrites: { 'README.md': 'readme.md', 'docs/:page.md': ':page.md' },
  outDir: '../build/site',
  cacheDir: '../build/vitepress',
  // The sidebar links to every page: 2 MB that most readers do not need.
  router: { prefetchLinks: false },
  // The plugin of links checks that linked files exist.
  ignoreDeadLinks: [/^\/source\//],
  buildEnd: ({ outDir }) => writeSources(outDir, base),

  markdown: {
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    anchor: { slugify: githubSlug },
    image: { lazyLoading: true },
    config: (markdownOfVitePress) => {
      const markdown = markdownOfVitePress as unknown as MarkdownIt // it has a copy of the type
      markdown.use(mathPlugin)
      markdown.use(diagramsPlugin)
      markdown.use(captionsPlugin, { base })
      markdown.use(linksPlugin)
      markdown.use(imagesPlugin)
      markdown.use(mapPlugin)
      markdown.use(livePlugin, { chapters })
      markdown.use(playgroundsPlugin)
      markdown.use(predictionsPlugin, { chapters })
      // Braces in the text of a page are no Vue expressions.
      const renderText = markdown.renderer.rules.text!
      markdown.renderer.rules.text = (...args) => renderText(...args).replace(/\{\{/g, '&#123;&#123;')
    },
  },

  vite: { plugins: [packagesOfReadme, fontsOfKatex] },

  themeConfig: {
    sidebar: sidebar(chapters),
    outline: [2, 3],
    search: {
      provider: 'local',
      // The index needs the text of the pages, but no colors.
      options: { _render: (text, env, markdown) => markdown.set({ highlight: null }).render(text, env) },
    },
  },
})
