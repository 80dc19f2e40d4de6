/** Inbound endpoints and transactions, outbound queues. */
export { FederationHttpModule } from './federation-http.module.js';
export { askForAllDeviceLists } from './devices/restored-device-lists.query.js';
export { FederationSenderModule } from './federation-sender.module.js';
export { federationSenderRole } from './sender/sender-router.js';
export { ProxiedFederationModule } from './proxied-federation.module.js';
export { federationMigrations } from './migrations/index.js';
