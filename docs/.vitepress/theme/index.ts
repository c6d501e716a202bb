import type { App } from 'vue'
import DefaultTheme from 'vitepress/theme'
import 'katex/dist/katex.min.css'
import { registerLive } from './live'
import './style.css'

export default {
  extends: DefaultTheme,
  enhanceApp({ app }: { app: App }) {
    registerLive(app)
  },
}
