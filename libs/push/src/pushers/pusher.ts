import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';

/** The app id of pushers that send mails. @spec client-server-api#post_matrixclientv3pushersset */
export const emailAppId = 'm.email';

/** A place to which a user's notifications are sent, as the user set it up. */
export interface PusherSettings {
  readonly kind: 'http' | 'email';
  readonly appId: string;
  readonly pushkey: string;
  readonly appDisplayName: string;
  readonly deviceDisplayName: string;
  readonly profileTag: string;
  readonly lang: string;
  readonly data: JsonObject;
  /** Whether it sends anything (MSC3881). */
  readonly enabled: boolean;
}

/** Names of what is not specified yet. */
const enabledKey = 'org.matrix.msc3881.enabled';
const deviceKey = 'org.matrix.msc3881.device_id';
const withoutBadgeKey = 'org.matrix.msc4076.disable_badge_count';

/** A pusher as it is stored. */
export interface Pusher extends PusherSettings {
  readonly id: number;
  readonly userId: string;
  readonly deviceId: string | undefined;
  /** When it was set up last, milliseconds since the epoch. */
  readonly ts: number;
  /** Everything up to this position was sent, or need not be. */
  readonly lastStreamOrdering: number;
  /** Since when nothing gets through, milliseconds since the epoch. */
  readonly failingSince: number | undefined;
  /** Between these positions lies something that was not sent yet. */
  readonly due: { readonly after: number; readonly upTo: number } | undefined;
}

/** What a request names a pusher by. */
export interface PusherKey {
  readonly appId: string;
  readonly pushkey: string;
}

const maxPushkeyBytes = 512;
const maxAppIdLength = 64;
const maxTextLength = 1_024;
const maxDataBytes = 16_384;
const gatewayPath = '/_matrix/push/v1/notify';

function text(body: JsonObject, name: string, maxLength: number): string {
  const value = body[name];
  if (value === undefined || value === null) throw MatrixError.missingParam(`Missing parameter '${name}'`);
  if (typeof value !== 'string' || value.length > maxLength || value.includes('\0') || !value.isWellFormed())
    throw MatrixError.invalidParam(`'${name}' must be a string of at most ${maxLength} characters`);
  return value;
}

/** @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM` */
export function parsePusherKey(body: JsonObject): PusherKey {
  const appId = text(body, 'app_id', maxAppIdLength);
  const pushkey = text(body, 'pushkey', maxPushkeyBytes);
  if (appId === '' || pushkey === '' || Buffer.byteLength(pushkey) > maxPushkeyBytes)
    throw MatrixError.invalidParam(
      `'app_id' and 'pushkey' may neither be empty nor longer than ${maxPushkeyBytes} bytes`,
    );
  return { appId, pushkey };
}

/**
 * Reads what a client wants to set up.
 * @param canToggle whether pushers can be switched off (MSC3881)
 * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`
 * @spec client-server-api#post_matrixclientv3pushersset
 */
export function parsePusher(body: JsonObject, canToggle: boolean): PusherSettings {
  const { kind, data } = body;
  if (kind !== 'http' && kind !== 'email') throw MatrixError.invalidParam("'kind' must be 'http', 'email' or null");
  const settings = {
    kind,
    ...parsePusherKey(body),
    appDisplayName: text(body, 'app_display_name', maxTextLength),
    deviceDisplayName: text(body, 'device_display_name', maxTextLength),
    lang: text(body, 'lang', maxTextLength),
    // Null is absent, as everywhere.
    profileTag: (body['profile_tag'] ?? undefined) === undefined ? '' : text(body, 'profile_tag', maxTextLength),
    enabled: !canToggle || body[enabledKey] !== false,
  } as const;
  if (data === undefined) throw MatrixError.missingParam("Missing parameter 'data'");
  if (!isJsonObject(data)) throw MatrixError.invalidParam("'data' must be an object");
  if (Buffer.byteLength(JSON.stringify(data)) > maxDataBytes)
    throw MatrixError.invalidParam(`'data' may not be larger than ${maxDataBytes} bytes`);
  if (kind === 'http') checkGateway(data['url']);
  return { ...settings, data };
}

function checkGateway(url: unknown): void {
  if (url === undefined) throw MatrixError.missingParam("Missing parameter 'data.url'");
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !['http:', 'https:'].includes(parsed.protocol) || parsed.pathname !== gatewayPath)
    throw MatrixError.invalidParam(`'data.url' must be a URL with the path ${gatewayPath}`);
}

/** Of a scheme, a name of a host and a port: longer ones lead nowhere. */
const maxOriginLength = 300;

/** Where the gateway that a pusher names listens; empty where it names none. */
export function gatewayOf({ data: { url } }: PusherSettings): string {
  return (typeof url === 'string' ? URL.parse(url)?.origin.slice(0, maxOriginLength) : undefined) ?? '';
}

/** Whether a client wants no numbers on its badge (MSC4076). */
export const isWithoutBadge = ({ data }: PusherSettings): boolean => data[withoutBadgeKey] === true;

/** A pusher as clients see it, with what MSC3881 adds where that is wanted. */
export function pusherContent(
  pusher: PusherSettings & { readonly deviceId?: string | undefined },
  full = false,
): JsonObject {
  return {
    ...(full && { [enabledKey]: pusher.enabled, [deviceKey]: pusher.deviceId ?? null }),
    kind: pusher.kind,
    app_id: pusher.appId,
    pushkey: pusher.pushkey,
    app_display_name: pusher.appDisplayName,
    device_display_name: pusher.deviceDisplayName,
    profile_tag: pusher.profileTag,
    lang: pusher.lang,
    data: pusher.data,
  };
}
