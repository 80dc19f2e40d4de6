/** HTML pages and mails. */
export { Pages, type PagesOptions, pagesOptionsOf, type RenderedPage } from './pages.js';
export { compileText, TemplateError } from './template-set.js';
