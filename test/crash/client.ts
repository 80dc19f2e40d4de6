/** An answer of the server under test. */
export interface Answer<T = Record<string, unknown>> {
  readonly status: number;
  readonly body: T;
}

/** An event as clients see it, as far as these tests look. */
export interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly content: Record<string, unknown>;
  readonly unsigned?: Record<string, unknown>;
}

/** Whether an answer says that the server, or one process of it, cannot help now: whoever asks again will be helped. */
export const isAway = ({ status }: Answer<unknown>): boolean => status === 502 || status === 503 || status === 504;

/** The server, or one process of it, cannot help now. */
export class AwayError extends Error {}

/** A user of the server under test. */
export class CrashClient {
  private constructor(
    private readonly baseUrl: () => string,
    readonly userId: string,
    readonly deviceId: string,
    private readonly accessToken: string,
    private readonly whenAway?: () => Promise<void> | undefined,
  ) {}

  /**
   * Registers.
   * @param baseUrl called for each request
   * @param whenAway called where {@link ok} found nobody who could help; it asks again after what that gives, and fails where that is nothing
   * @throws Error when that is refused
   */
  static async register(
    baseUrl: () => string,
    username: string,
    whenAway?: () => Promise<void> | undefined,
  ): Promise<CrashClient> {
    const body = { username, password: `password of ${username}`, auth: { type: 'm.login.dummy' } };
    const answer = await call<Record<string, string>>(baseUrl(), 'POST', '/register', undefined, body);
    if (answer.status !== 200) throw new Error(`No registration: ${JSON.stringify(answer.body)}`);
    const { user_id: userId = '', device_id: deviceId = '', access_token: accessToken = '' } = answer.body;
    return new CrashClient(baseUrl, userId, deviceId, accessToken, whenAway);
  }

  /** A request; rejects when the connection broke before the whole answer was there. */
  request<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
    return call<T>(this.baseUrl(), method, path, this.accessToken, body);
  }

  /** A request that must be answered with 200. @throws AwayError where it may be asked again */
  async ok<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<T> {
    for (;;) {
      try {
        return await this.#once<T>(method, path, body);
      } catch (error) {
        const isLoss = error instanceof AwayError || error instanceof TypeError || error instanceof SyntaxError;
        const back = isLoss ? this.whenAway?.() : undefined;
        if (back === undefined) throw error;
        await back;
      }
    }
  }

  async #once<T>(method: string, path: string, body: unknown): Promise<T> {
    const answer = await this.request<T>(method, path, body);
    if (answer.status === 200) return answer.body;
    const problem = `${method} ${path} by ${this.userId}: ${answer.status} ${JSON.stringify(answer.body)}`;
    throw isAway(answer) ? new AwayError(problem) : new Error(problem);
  }
}

async function call<T>(
  baseUrl: string,
  method: string,
  path: string,
  accessToken: string | undefined,
  body: unknown,
): Promise<Answer<T>> {
  const response = await fetch(`${baseUrl}/_matrix/client/v3${path}`, {
    method,
    headers: {
      'content-type': 'application/json',
      ...(accessToken !== undefined && { authorization: `Bearer ${accessToken}` }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as T };
}

/** Calls `each` for all items, a few at a time. */
export async function inParallel<T>(items: Iterable<T>, each: (item: T) => Promise<void>, width = 8): Promise<void> {
  const rest = [...items].values();
  const lane = async (): Promise<void> => {
    for (const item of rest) await each(item);
  };
  await Promise.all(Array.from({ length: width }, lane));
}
