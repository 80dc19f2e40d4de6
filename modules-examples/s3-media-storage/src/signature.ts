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

/** The `authorization` header of a request (AWS Signature Version 4). `headers` must hold `x-amz-date`. */
export function authorization({ method, path, headers }: SignedRequest, credentials: Credentials): string {
  const { accessKeyId, secretAccessKey, region } = credentials;
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
  const day = date.slice(0, 8);
  const scope = `${day}/${region}/s3/aws4_request`;
  const key = [region, 's3', 'aws4_request'].reduce<Buffer>(
    (derived, part) => hmac(derived, part),
    hmac(`AWS4${secretAccessKey}`, day),
  );
  const signature = hmac(key, `AWS4-HMAC-SHA256\n${date}\n${scope}\n${sha256(canonical)}`).toString('hex');
  return `AWS4-HMAC-SHA256 Credential=${accessKeyId}/${scope}, SignedHeaders=${signedHeaders}, Signature=${signature}`;
}
