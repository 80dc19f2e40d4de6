import type { Config, Metrics, RateLimitSetting } from '@rookery/platform';
import type { HttpAppOptions } from './http-app.js';
import { IpGuard } from './ip-guard.js';
import type { ListenerSettings, TlsFiles } from './listeners.js';
import type { OutboundOptions } from './outbound-http.js';
import type { LimiterName, RateLimit } from './rate-limiter.js';

/** The files the settings name at the time they are read, so that a reload may name others. */
const tlsFilesOf = (config: Config): TlsFiles => ({
  get certificatePath() {
    return config.get('tls_certificate_path');
  },
  get privateKeyPath() {
    return config.get('tls_private_key_path');
  },
});

/** The part of {@link HttpAppOptions} that the settings decide. */
export function httpSettingsOf(config: Config): Pick<HttpAppOptions, 'serverName' | 'listeners' | 'tls' | 'prefixes'> {
  const configured = config.get('worker_app') === undefined ? config.get('listeners') : config.get('worker_listeners');
  const noTls = config.get('no_tls');
  const listeners = configured.flatMap((listener): ListenerSettings[] => {
    if (listener.type === 'manhole' || (noTls && listener.tls)) return [];
    return [
      {
        tag: listener.tag,
        port: listener.port,
        path: listener.path,
        mode: listener.mode,
        bindAddresses: listener.bind_addresses,
        type: listener.type,
        tls: listener.tls,
        xForwarded: listener.x_forwarded,
        requestIdHeader: listener.request_id_header,
        resources: listener.resources,
        extraPaths: Object.keys(listener.additional_resources),
      },
    ];
  });
  return {
    serverName: config.serverName,
    listeners,
    tls: tlsFilesOf(config),
    prefixes: { protocol: config.get('protocol_prefix'), service: config.get('service_prefix') },
  };
}

/**
 * Which addresses requests to other servers and to identity servers may reach: the old setting for these stands in for the default
 * of the present one, and beside what is set there.
 */
export function federationGuardOf(config: Config): IpGuard {
  const own = config.get('federation_ip_range_blacklist');
  const general = config.get('ip_range_blacklist');
  const blocked = own === undefined ? general : config.isGiven('ip_range_blacklist') ? [...general, ...own] : own;
  return new IpGuard(blocked, config.get('ip_range_whitelist'));
}

/** How outgoing requests that are not federation leave the server. */
export function outboundOptionsOf(config: Config, version: string, metrics?: Metrics): OutboundOptions {
  const suffix = config.get('user_agent_suffix');
  return {
    guard: new IpGuard(config.get('ip_range_blacklist'), config.get('ip_range_whitelist')),
    federationGuard: federationGuardOf(config),
    userAgent: `Rookery/${version}${suffix === undefined ? '' : ` ${suffix}`}`,
    httpProxy: config.get('http_proxy'),
    httpsProxy: config.get('https_proxy'),
    noProxyHosts: config.get('no_proxy_hosts'),
    metrics,
  };
}

/** Limiters whose numbers are a setting. */
const settingOfLimiter = [
  'rc_message',
  'rc_registration',
  'rc_registration_token_validity',
  'rc_ui_auth',
  'rc_login.address',
  'rc_login.account',
  'rc_login.failed_attempts',
  'rc_admin_redaction',
  'rc_joins.local',
  'rc_joins.remote',
  'rc_joins_per_room',
  'rc_3pid_validation',
  'rc_invites.per_room',
  'rc_invites.per_user',
  'rc_invites.per_issuer',
  'rc_third_party_invite',
  'rc_media_create',
  'rc_presence.per_user',
  'rc_delayed_event_mgmt',
  'rc_room_creation',
  'rc_reports',
  'rc_user_directory',
  'rc_key_requests',
  'rc_profile',
] as const;

/** The numbers of the limiters, for `LeakyBucketRateLimiter`. */
export function rateLimitsOf(config: Config): (limiter: LimiterName) => RateLimit | undefined {
  const limits = new Map<LimiterName, RateLimit>();
  const read = (): void => {
    for (const name of settingOfLimiter) {
      const value: RateLimitSetting = config.get(name) ?? config.get('rc_message');
      limits.set(name, { perSecond: value.per_second, burstCount: value.burst_count });
    }
    // Whoever lets more people register lets as many begin.
    const [begun, registered] = [limits.get('rc_ui_auth')!, limits.get('rc_registration')!];
    limits.set('rc_ui_auth', {
      perSecond: Math.max(begun.perSecond, registered.perSecond),
      burstCount: Math.max(begun.burstCount, registered.burstCount),
    });
  };
  read();
  config.onReload(read);
  // One token for each request of an existing session, each minute; not a setting in the field.
  limits.set('login_via_existing_session', { perSecond: 1 / 60, burstCount: 1 });
  return (limiter) => limits.get(limiter);
}
