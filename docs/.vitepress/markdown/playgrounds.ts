// Replaces comments such as <!-- playground: tokenizer --> by the playground's component.
import type MarkdownIt from 'markdown-it'

const components: Record<string, string> = {
  answer: 'AnswerPlayground',
  ask: 'AskPlayground',
  attention: 'AttentionPlayground',
  generation: 'GenerationPlayground',
  mask: 'MaskPlayground',
  mesh: 'MeshPlayground',
  names: 'NamesPlayground',
  ring: 'RingPlayground',
  rope: 'RopePlayground',
  serving: 'ServingPlayground',
  speculation: 'SpeculationPlayground',
  tokenizer: 'TokenizerPlayground',
  training: 'TrainingPlayground',
  walk: 'WalkPlayground',
}

export function playgroundsPlugin(markdown: MarkdownIt) {
  markdown.core.ruler.push('playgrounds', ({ tokens }) => {
    for (const token of tokens) {
      const name = token.type === 'html_block' && /^<!-- playground: (\w+) -->$/.exec(token.content.trim())?.[1]
      if (!name) continue
      if (!components[name]) throw new Error(`there is no playground "${name}"`)
      token.content = `<${components[name]} />\n`
    }
  })
}
