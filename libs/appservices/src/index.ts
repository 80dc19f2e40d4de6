/** Registrations, namespaces, outgoing transactions. */
export { AppservicesHttpModule } from './appservices-http.module.js';
export { AppservicesSenderModule } from './appservices-sender.module.js';
export { mendSequence, sequenceProblem } from './delivery/sequence-repair.query.js';
export { appserviceSenderRole } from './delivery/service-router.js';
export { moveSequence } from './delivery/sequence-move.query.js';
export { appservicesMigrations } from './migrations/index.js';
export { proxiedPathsOf } from './proxied/proxied-paths.js';
export { ProxiedRequestsModule } from './proxied-requests.module.js';
export { readRegistrations } from './registration/read-registrations.js';
