import { Injectable } from '@nestjs/common';
import { domainOf, isJsonObject } from '@rookery/matrix-types';
import { Clock, Logger } from '@rookery/platform';
import { type ClaimedKeys, E2eePorts, type RemoteDeviceKeys, type RemoteKeySource } from '../ports.js';

/** Why a server gave no answer; goes to the client. */
export type RemoteFailures = Readonly<Record<string, { readonly status: number; readonly message: string }>>;

const unreachable = { status: 503, message: 'The server cannot be reached' } as const;

/** Keys that other servers know. */
@Injectable()
export class RemoteKeys {
  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly ports: E2eePorts,
  ) {}

  /** Asks servers side by side; what a server says about users of others is dropped. One that gave only a part has failed, too. */
  async query(
    servers: ReadonlyMap<string, Readonly<Record<string, readonly string[]>>>,
    timeoutMs: number,
  ): Promise<{ answers: RemoteDeviceKeys[]; failures: RemoteFailures }> {
    const { answers, failures } = await this.#askAll(servers, timeoutMs, (source, server, devices) =>
      source.query(server, devices, timeoutMs),
    );
    const partly = answers.filter(({ answer }) => answer.failure !== undefined);
    for (const { server, answer } of partly) this.#failed(server, answer.failure);
    return {
      failures: { ...failures, ...Object.fromEntries(partly.map(({ server }) => [server, unreachable])) },
      answers: answers.map(({ server, answer }) => ({
        device_keys: ofServer(answer.device_keys, server),
        master_keys: ofServer(answer.master_keys, server),
        self_signing_keys: ofServer(answer.self_signing_keys, server),
      })),
    };
  }

  /** The same for one-time keys. */
  async claim(
    servers: ReadonlyMap<string, Readonly<Record<string, Readonly<Record<string, string>>>>>,
    timeoutMs: number,
  ): Promise<{ answers: ClaimedKeys[]; failures: RemoteFailures }> {
    const { answers, failures } = await this.#askAll(servers, timeoutMs, (source, server, wanted) =>
      source.claim(server, wanted, timeoutMs),
    );
    return { failures, answers: answers.map(({ server, answer }) => ofServer(answer, server)) };
  }

  async #askAll<Question, Answer>(
    servers: ReadonlyMap<string, Question>,
    timeoutMs: number,
    ask: (source: RemoteKeySource, server: string, question: Question) => Promise<Answer>,
  ): Promise<{ answers: { server: string; answer: Answer }[]; failures: RemoteFailures }> {
    const answers: { server: string; answer: Answer }[] = [];
    const failures: Record<string, { status: number; message: string }> = {};
    const source = this.ports.remoteKeys.given;
    if (servers.size === 0) return { answers, failures };
    const over = new AbortController();
    const late = this.clock.sleep(timeoutMs, over.signal).then(() => undefined);
    await Promise.all(
      [...servers].map(async ([server, question]) => {
        try {
          const answer = source === undefined ? undefined : await Promise.race([ask(source, server, question), late]);
          if (answer === undefined) failures[server] = unreachable;
          else answers.push({ server, answer });
        } catch (error) {
          this.#failed(server, error);
          failures[server] = unreachable;
        }
      }),
    );
    over.abort();
    return { answers, failures };
  }

  #failed(server: string, error: unknown): void {
    this.logger.info('Another server gave no keys', { server, err: error });
  }
}

function ofServer<Value>(
  byUser: Readonly<Record<string, Value>> | undefined,
  server: string,
): Readonly<Record<string, Value>> {
  return Object.fromEntries(
    Object.entries(byUser ?? {}).filter(([userId, value]) => domainOf(userId) === server && isJsonObject(value)),
  );
}
