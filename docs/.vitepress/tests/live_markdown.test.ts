import { describe, expect, test } from 'vitest'
import { chapters, renderPage } from './pages'
import { commandOf } from '../markdown/live'

const console_ = (...lines: string[]) => ['```console', ...lines, '```', ''].join('\n')
const render = (text: string) => renderPage(text, '/docs/05_gqa.md')

describe('commands', () => {
  test('of a chapter can be run, without figures on disk', () => {
    expect(commandOf('$ ./learn 11 --temperature 0 --plots none', chapters))
      .toEqual({ slug: '11_generation', args: ['--temperature', '0'] })
  })

  test('of the walk can be run, too', () => {
    expect(commandOf('$ ./learn walk --layer 1', chapters)).toEqual({ slug: 'walk', args: ['--layer', '1'] })
  })

  test.each(['$ ./learn test 5', '$ ./learn read 5', '$ ./learn 99', '$ ls', '$ ./learn 9 --model tests/fixtures'])(
    'not on the site: %s', line => expect(commandOf(line, chapters)).toBeNull())
})

describe('console blocks', () => {
  test('become live cells that contain the printed text', () => {
    const html = render(console_('$ ./learn 5 --seq-len 6', '...', 'query: (1, 4)'))
    expect(html).toContain('<LiveCell :command="{&quot;slug&quot;:&quot;05_gqa&quot;,&quot;args&quot;:[&quot;--seq-len&quot;,&quot;6&quot;]}"')
    expect(html).toContain(':is-own="true"')
    expect(html).toContain('query: (1, 4)\n</code>')
    expect(html).not.toContain('$ ./learn')
  })

  test('take controls and the mark of run times from comments', () => {
    const html = render('<!-- volatile -->\n<!-- controls: --seq-len 1..24 -->\n' + console_('$ ./learn 5', '...'))
    expect(html).toContain('&quot;name&quot;:&quot;--seq-len&quot;,&quot;low&quot;:1,&quot;high&quot;:24')
    expect(html).toContain(':is-volatile="true"')
    expect(html).not.toContain('<!--')
  })

  test('stay text right after a diff, whose change the site does not have', () => {
    const diff = '```diff\n--- chapters/05_gqa/attention.cpp\n-a\n+b\n```\n\n'
    expect(render(diff + console_('$ ./learn 5', '...') + '\n' + console_('$ ./learn 11', '...'))).not.toContain('LiveCell')
    expect(render(diff + 'Then:\n\n' + console_('$ ./learn 5', '...'))).toContain('LiveCell')
  })
})

describe('images', () => {
  test('of a figure become live figures', () => {
    const html = render('![Three heatmaps, "weights".](../assets/05_gqa_words.svg)')
    expect(html).toMatch(/^<LiveFigure :slug="&quot;05_gqa&quot;" :name="&quot;words&quot;" :alt="&quot;Three/)
    expect(html).toContain('<img src="../assets/05_gqa_words.svg"')
    expect(html).not.toContain('<p>')
  })

  test('of anything else stay images', () => {
    expect(render('![Growth of the benchmark.](../assets/bench_growth.svg)')).not.toContain('LiveFigure')
  })
})
