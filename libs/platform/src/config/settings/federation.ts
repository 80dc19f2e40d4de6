import * as k from '../kinds.js';
import { optional, setting } from '../setting.js';
import { serverName } from './shapes.js';

const tlsVersion = k.mapped(k.oneOf('1', '1.1', '1.2', '1.3', 1, 1.1, 1.2, 1.3), (value) => `${value}`);

/** Rooms of other servers that are joined are smaller. */
const maxStateEvents = 250_000;

/** TLS and the other servers. */
export const federationSettings = {
  tls_certificate_path: optional(k.path, 'Certificate chain (PEM) of TLS listeners.', { reload: true }),
  tls_private_key_path: optional(k.path, 'Private key (PEM) of TLS listeners.', { reload: true }),
  no_tls: setting(k.flag, false, 'Leave out listeners that speak TLS.'),
  federation_verify_certificates: setting(k.flag, true, 'Check the certificates of other servers.', { since: '1.0' }),
  federation_client_minimum_tls_version: setting(tlsVersion, '1', 'Oldest TLS version to speak to other servers.'),
  federation_certificate_verification_whitelist: setting(
    k.list(k.text({ pattern: /^[\x21-\x7e]+$/, expected: 'a domain of ASCII letters, with * and ? as wildcards' })),
    [],
    'Servers whose certificates are not checked.',
  ),
  federation_custom_ca_list: optional(
    k.list(k.path, { nonEmpty: true }),
    'Certificate authorities (PEM files) for other servers, instead of the usual ones.',
  ),
  federation_domain_whitelist: optional(k.list(serverName), 'Speak only to these servers; `[]` to none.'),
  federation_whitelist_endpoint_enabled: setting(k.flag, false, 'Tell logged-in users the list above.', {
    since: '1.108',
  }),
  federation_metrics_domains: setting(
    k.list(serverName),
    [],
    'Servers for which the time of the last event is a metric.',
  ),
  allow_profile_lookup_over_federation: setting(k.flag, true, 'Show profiles to other servers.'),
  allow_device_name_lookup_over_federation: setting(k.flag, false, 'Show device names to other servers.', {
    since: '1.59',
  }),
  'federation.client_timeout': setting(k.duration, 60_000, 'Longest time a request to another server may take.'),
  'federation.max_short_retry_delay': setting(k.duration, 2000, 'Longest pause between tries that somebody waits for.'),
  'federation.max_long_retry_delay': setting(k.duration, 60_000, 'Longest pause between other tries.'),
  'federation.max_short_retries': setting(k.whole(), 3, 'Tries again that somebody waits for.'),
  'federation.max_long_retries': setting(k.whole(), 10, 'Other tries again.'),
  'federation.destination_min_retry_interval': setting(
    k.duration,
    600_000,
    'First pause after a server could not be reached.',
  ),
  'federation.destination_retry_multiplier': setting(k.decimal(1), 2, 'By how much the pause grows.'),
  'federation.destination_max_retry_interval': setting(k.duration, 7 * 86_400_000, 'Longest pause.'),
  'federation.max_state_events': setting(
    k.whole(100, 10_000_000),
    maxStateEvents,
    'Events that the state of a room elsewhere may have, and its auth chain as many: larger rooms are not joined. So much as that needs on ' +
      'average, about 1 KB for each, is taken as the answer to a join, and lies in the folder for temporary files meanwhile.',
  ),
};
