import { Agent, request } from 'node:http';

/** A request as bytes: nothing on the way mends it. */
export interface WireRequest {
  readonly method: string;
  /** Path and query as they stand on the wire. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | undefined;
}

export interface WireAnswer {
  /** `undefined`: none came within the time. */
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** The connection ended without an answer. */
  readonly error?: string;
}

/** Sends requests over kept connections. */
export class Wire {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 8 });

  constructor(private readonly baseUrl: string) {}

  /** Never rejects. */
  send({ method, target, headers, body }: WireRequest, patienceMs: number): Promise<WireAnswer> {
    const { hostname, port } = new URL(this.baseUrl);
    return new Promise((resolve) => {
      const none = (error?: string): void =>
        resolve({ status: undefined, headers: {}, text: '', ...(error === undefined ? {} : { error }) });
      const outgoing = request(
        { hostname, port, method, path: target, agent: this.#agent, headers: { ...headers, ...lengthOf(body) } },
        (answer) => {
          const chunks: Buffer[] = [];
          answer.on('data', (chunk: Buffer) => chunks.push(chunk));
          answer.on('error', (error: Error) => none(error.message));
          answer.on('end', () => {
            clearTimeout(patience);
            resolve({
              status: answer.statusCode,
              headers: answer.headers,
              text: Buffer.concat(chunks).toString('utf8'),
            });
          });
        },
      );
      const patience = setTimeout(() => {
        none();
        outgoing.destroy();
      }, patienceMs);
      outgoing.on('error', (error) => {
        clearTimeout(patience);
        none(error.message);
      });
      outgoing.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

const lengthOf = (body: string | Buffer | undefined): Record<string, number> =>
  body === undefined ? {} : { 'content-length': Buffer.byteLength(body) };
