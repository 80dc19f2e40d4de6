/** Admin API, server notices, reports. */
export { AdminHttpModule } from './admin-http.module.js';
export { ServerNotices } from './server-notices/server-notices.service.js';
export { ServerNoticesModule } from './server-notices/server-notices.module.js';
export { usageReport } from './usage-report/usage-report.js';
