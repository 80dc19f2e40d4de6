/** HTML pages and mails. */
export { Pages, type PagesOptions, pagesOptionsOf, type RenderedPage } from './pages.js';
export { compileText, TemplateError } from './template-set.js';
export { isMailAddress } from './mail-address.js';
export { templatesMigrations } from './mail-queue.query.js';
export {
  type MailKind,
  Mailer,
  type MailerOptions,
  mailerOptionsOf,
  type MailRequest,
  type SubjectName,
} from './mailer.js';
