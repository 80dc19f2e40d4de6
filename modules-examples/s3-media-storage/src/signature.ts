import { createHash, createHmac } from 'node:crypto';

/** What a signature is made with. */
export interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly region: string;
}

/** A request to be signed. */
export interface SignedRequest {
  readonly method: string;
  /** As it goes on the wire: encoded, without a query. */
  readonly path: string;
  /** Names in lower case; all of them are signed. `host` and `x-amz-content-sha256` must be there. */
  readonly headers: Readonly<Record<string, string>>;
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const hmac = (key: string | Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest();

/** `20130524T000000Z` */
export const amzDate = (timeMs: number): string => new Date(timeMs).toISOString().replace(/[-:]|\.\d{3}/g, '');

/** Encodes what stands between the slashes of a path, as signatures want it. */
export const encodePath = (path: string): string =>
  path
    .split('/')
    .map((part) =>
      encodeURIComponent(part).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`),
    )
    .join('/');

/** A part of a query, as signatures want it. */
const encodePart = (text: string): string => encodePath(text).replaceAll('/', '%2F');

/** What a signature is good for: a day, a region, a service. */
const scopeOf = (date: string, region: string): string => `${date.slice(0, 8)}/${region}/s3/aws4_request`;

/** Signs a canonical request. */
function signatureOf(canonical: string, date: string, { region, secretAccessKey }: Credentials): string {
  const key = [region, 's3', 'aws4_request'].reduce<Buffer>(
    (derived, part) => hmac(derived, part),
    hmac(`AWS4${secretAccessKey}`, date.slice(0, 8)),
  );
  const text = `AWS4-HMAC-SHA256\n${date}\n${scopeOf(date, region)}\n${sha256(canonical)}`;
  return hmac(key, text).toString('hex');
}

/** What an address is to be good for. */
export interface PresignedRequest {
  /** As it goes on the wire: encoded, without a query. */
  readonly path: string;
  readonly host: string;
  /** What the service is asked beside the object. */
  readonly query: Readonly<Record<string, string>>;
  readonly seconds: number;
  /** As {@link amzDate} writes it. */
  readonly date: string;
}

/** The query of an address with which anybody may get an object for a while (AWS Signature Version 4). */
export function presignedQuery(request: PresignedRequest, credentials: Credentials): string {
  const { path, host, query, seconds, date } = request;
  const all = {
    ...query,
    'X-Amz-Algorithm': 'AWS4-HMAC-SHA256',
    'X-Amz-Credential': `${credentials.accessKeyId}/${scopeOf(date, credentials.region)}`,
    'X-Amz-Date': date,
    'X-Amz-Expires': String(seconds),
    'X-Amz-SignedHeaders': 'host',
  };
  const sorted = Object.entries(all)
    .map(([name, value]) => `${encodePart(name)}=${encodePart(value)}`)
    .sort()
    .join('&');
  const canonical = ['GET', path, sorted, `host:${host}`, '', 'host', 'UNSIGNED-PAYLOAD'].join('\n');
  return `${sorted}&X-Amz-Signature=${signatureOf(canonical, date, credentials)}`;
}

/** The `authorization` header of a request (AWS Signature Version 4). `headers` must hold `x-amz-date`. */
export function authorization({ method, path, headers }: SignedRequest, credentials: Credentials): string {
  const { accessKeyId, region } = credentials;
  const names = Object.keys(headers).sort();
  const signedHeaders = names.join(';');
  const canonical = [
    method,
    path,
    '',
    ...names.map((name) => `${name}:${(headers[name] ?? '').trim()}`),
    '',
    signedHeaders,
    headers['x-amz-content-sha256'] ?? '',
  ].join('\n');
  const date = headers['x-amz-date'] ?? '';
  const scope = scopeOf(date, region);
  const signature = signatureOf(canonical, date, credentials);
  return `AWS4-HMAC-SHA256 Credential=${accessKeyId}/${scope}, SignedHeaders=${signedHeaders}, Signature=${signature}`;
}
