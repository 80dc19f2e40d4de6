import { createHash, createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The account that the server knows. */
export const account = { access_key_id: 'AKIDTEST', secret_access_key: 'secret/with+signs', region: 'test-1' };

/** A small server that speaks S3: puts, gets and deletes objects of one bucket in memory, and checks every signature. */
export interface S3Server {
  readonly endpoint: string;
  readonly objects: Map<string, Buffer>;
  /** Headers of the last upload. */
  lastPut: IncomingMessage['headers'];
  /** Requests so far. */
  requests: number;
  /** Answers that come before the real ones: statuses, or `reset` for a connection that breaks. */
  trouble: (number | 'reset')[];
  stop(): Promise<void>;
}

const hex = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');

/** Why a request's signature is wrong; `undefined` for a right one. */
function signatureProblem(request: IncomingMessage, body: Buffer): string | undefined {
  const { headers, method = '', url = '' } = request;
  const match =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})$/.exec(
      headers.authorization ?? '',
    );
  if (!match) return 'MissingSecurityHeader';
  const [, id, day = '', region = '', names = '', signature] = match;
  if (id !== account.access_key_id) return 'InvalidAccessKeyId';
  if (region !== account.region) return 'AuthorizationHeaderMalformed';
  if (headers['x-amz-content-sha256'] !== hex(body)) return 'XAmzContentSHA256Mismatch';
  for (const needed of ['host', 'x-amz-date', 'x-amz-content-sha256'])
    if (!names.split(';').includes(needed)) return 'SignatureDoesNotMatch';
  const lines = names.split(';').map((name) => `${name}:${String(headers[name])}\n`);
  const canonical = `${method}\n${url}\n\n${lines.join('')}\n${names}\n${hex(body)}`;
  const text = `AWS4-HMAC-SHA256\n${String(headers['x-amz-date'])}\n${day}/${region}/s3/aws4_request\n${hex(canonical)}`;
  let key: Buffer = Buffer.from(`AWS4${account.secret_access_key}`);
  for (const part of [day, region, 's3', 'aws4_request']) key = createHmac('sha256', key).update(part).digest();
  return createHmac('sha256', key).update(text).digest('hex') === signature ? undefined : 'SignatureDoesNotMatch';
}

/** Why an address that was signed beforehand is not good; `undefined` for a good one. */
function addressProblem({ method = '', headers, url = '' }: IncomingMessage): string | undefined {
  const [path = '', query = ''] = url.split('?');
  const given = new URLSearchParams(query);
  const [id, day = '', region = '', ...rest] = (given.get('X-Amz-Credential') ?? '').split('/');
  const date = given.get('X-Amz-Date') ?? '';
  if (id !== account.access_key_id || region !== account.region || rest.join('/') !== 's3/aws4_request')
    return 'AuthorizationQueryParametersError';
  const [year, month, on, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/
    .exec(date)!
    .slice(1)
    .map(Number);
  const endsAtMs = Date.UTC(year!, month! - 1, on, hour, minute, second) + Number(given.get('X-Amz-Expires')) * 1000;
  if (!(Date.now() < endsAtMs)) return 'AccessDenied';
  const parts = query.split('&');
  const canonical = [
    ...[
      method,
      path,
      parts
        .filter((part) => !part.startsWith('X-Amz-Signature='))
        .sort()
        .join('&'),
    ],
    ...[`host:${headers.host}`, '', given.get('X-Amz-SignedHeaders'), 'UNSIGNED-PAYLOAD'],
  ].join('\n');
  const text = `AWS4-HMAC-SHA256\n${date}\n${day}/${region}/s3/aws4_request\n${hex(canonical)}`;
  let key: Buffer = Buffer.from(`AWS4${account.secret_access_key}`);
  for (const part of [day, region, 's3', 'aws4_request']) key = createHmac('sha256', key).update(part).digest();
  const signature = createHmac('sha256', key).update(text).digest('hex');
  return signature === given.get('X-Amz-Signature') ? undefined : 'SignatureDoesNotMatch';
}

/** Starts it on a free port of the loopback address. */
export async function startS3Server(bucket: string): Promise<S3Server> {
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    state.requests += 1;
    const body = Buffer.concat(await request.toArray());
    const trouble = state.trouble.shift();
    if (trouble === 'reset') return void request.socket.destroy();
    const fail = (status: number, code: string): void =>
      void response
        .writeHead(status, { 'content-type': 'application/xml' })
        .end(`<Error><Code>${code}</Code><Message>no</Message></Error>`);
    if (trouble !== undefined) return fail(trouble, 'SlowDown');
    const query = new URL(request.url ?? '', 'http://bucket').searchParams;
    const problem = query.has('X-Amz-Signature') ? addressProblem(request) : signatureProblem(request, body);
    if (problem !== undefined) return fail(403, problem);
    const path = decodeURIComponent((request.url ?? '').split('?')[0]!);
    if (!path.startsWith(`/${bucket}/`)) return fail(404, 'NoSuchBucket');
    const name = path.slice(bucket.length + 2);
    if (request.method === 'PUT') {
      state.objects.set(name, body);
      state.lastPut = request.headers;
      response.end();
    } else if (request.method === 'DELETE') {
      state.objects.delete(name);
      response.writeHead(204).end();
    } else {
      const found = state.objects.get(name);
      const wanted = ['content-type', 'content-disposition'].flatMap((header) => {
        const value = query.get(`response-${header}`);
        return value === null ? [] : [[header, value]];
      });
      if (found)
        response
          .writeHead(200, { 'content-length': found.length, ...(Object.fromEntries(wanted) as Record<string, string>) })
          .end(request.method === 'HEAD' ? undefined : found);
      else fail(404, 'NoSuchKey');
    }
  };
  const server = createServer((request, response) => {
    answer(request, response).catch(() => request.socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const state: S3Server = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    objects: new Map(),
    lastPut: {},
    requests: 0,
    trouble: [],
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return state;
}
