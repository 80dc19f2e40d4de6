/** HTML pages and mails. */
export { isMailAddress } from './mail-address.js';
export { Pages, pagesOptionsOf } from './pages.js';
export { compileText, TemplateError } from './template-set.js';
export { templatesMigrations } from './mail-queue.query.js';
export { type MailKind, Mailer, mailerOptionsOf, type MailRequest, type SubjectName } from './mailer.js';
