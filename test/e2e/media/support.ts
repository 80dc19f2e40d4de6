import type { TestHomeserver, TestUser } from '@rookery/testing';

type Bytes = string | Uint8Array<ArrayBuffer>;

/** An answer with its bytes. */
export interface FileAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
  /** The body as JSON; of errors. */
  readonly body: Record<string, unknown>;
}

/** A request with bytes in it, or bytes in the answer. */
export async function call(
  homeserver: TestHomeserver,
  method: string,
  path: string,
  options: {
    readonly token?: string;
    readonly bytes?: Bytes;
    readonly headers?: Record<string, string>;
  } = {},
): Promise<FileAnswer> {
  const { token, bytes, headers } = options;
  const response = await fetch(homeserver.baseUrl + path, {
    method,
    headers: { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), ...headers },
    ...(bytes === undefined ? {} : { body: bytes, duplex: 'half' }),
  } as RequestInit);
  const content = Buffer.from(await response.arrayBuffer());
  const isJson = (response.headers.get('content-type') ?? '').startsWith('application/json');
  let body: Record<string, unknown> = {};
  try {
    if (isJson) body = JSON.parse(content.toString()) as Record<string, unknown>;
  } catch {
    // A file that only says that it is JSON.
  }
  return { status: response.status, headers: response.headers, bytes: content, body };
}

/** Uploads a file and gives `server/id`. */
export async function upload(
  homeserver: TestHomeserver,
  user: TestUser,
  bytes: Bytes,
  type = 'application/octet-stream',
  name?: string,
): Promise<string> {
  const query = name === undefined ? '' : `?filename=${encodeURIComponent(name)}`;
  const answer = await call(homeserver, 'POST', `/_matrix/media/v3/upload${query}`, {
    token: user.accessToken,
    bytes,
    headers: { 'content-type': type },
  });
  const uri = answer.body['content_uri'];
  if (typeof uri !== 'string') throw new Error(`The upload was refused: ${JSON.stringify(answer.body)}`);
  return uri.slice('mxc://'.length);
}

/** Downloads with a token. */
export const download = (
  homeserver: TestHomeserver,
  user: TestUser,
  media: string,
  headers: Record<string, string> = {},
): Promise<FileAnswer> =>
  call(homeserver, 'GET', `/_matrix/client/v1/media/download/${media}`, { token: user.accessToken, headers });
