// The components that the Markdown plugins place. A playground is loaded with the page that has it.
import { type App, defineAsyncComponent } from 'vue'
import LiveCell from './components/LiveCell.vue'
import LiveFigure from './components/LiveFigure.vue'
import ModelMap from './components/ModelMap.vue'
import Prediction from './components/Prediction.vue'

const playgrounds = {
  AnswerPlayground: () => import('./components/playgrounds/AnswerPlayground.vue'),
  AskPlayground: () => import('./components/playgrounds/AskPlayground.vue'),
  AttentionPlayground: () => import('./components/playgrounds/AttentionPlayground.vue'),
  GenerationPlayground: () => import('./components/playgrounds/GenerationPlayground.vue'),
  MaskPlayground: () => import('./components/playgrounds/MaskPlayground.vue'),
  MeshPlayground: () => import('./components/playgrounds/MeshPlayground.vue'),
  NamesPlayground: () => import('./components/playgrounds/NamesPlayground.vue'),
  RingPlayground: () => import('./components/playgrounds/RingPlayground.vue'),
  RopePlayground: () => import('./components/playgrounds/RopePlayground.vue'),
  ServingPlayground: () => import('./components/playgrounds/ServingPlayground.vue'),
  SpeculationPlayground: () => import('./components/playgrounds/SpeculationPlayground.vue'),
  TokenizerPlayground: () => import('./components/playgrounds/TokenizerPlayground.vue'),
  TrainingPlayground: () => import('./components/playgrounds/TrainingPlayground.vue'),
  WalkPlayground: () => import('./components/playgrounds/WalkPlayground.vue'),
}

export function registerLive(app: App) {
  app.component('LiveCell', LiveCell)
  app.component('LiveFigure', LiveFigure)
  app.component('ModelMap', ModelMap)
  app.component('Prediction', Prediction)
  for (const [name, load] of Object.entries(playgrounds)) app.component(name, defineAsyncComponent(load))
}
