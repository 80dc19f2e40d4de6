import { Injectable } from '@nestjs/common';
import { HeldBytes } from '@rookery/http';
import { domainOf, isJsonObject } from '@rookery/matrix-types';
import { Clock, eachLimit, Logger } from '@rookery/platform';
import { type ClaimedKeys, E2eePorts, type KeyRoom, type RemoteDeviceKeys, type RemoteKeySource } from '../ports.js';
import { HeldRemoteKeys } from './held-remote-keys.js';
import { byServer, limits } from './limits.js';

/** Why a server gave no answer; goes to the client. */
export type RemoteFailures = Readonly<Record<string, { readonly status: number; readonly message: string }>>;

/** Servers that are asked side by side for one request: some show no life, and the others must not wait for them. */
const parallel = 100;

const unreachable = { status: 503, message: 'The server cannot be reached' } as const;
const tooMuch = { status: 503, message: 'There are more keys of users of the server than there is room for' } as const;

/** Keys that other servers know. */
@Injectable()
export class RemoteKeys {
  readonly #held = new HeldBytes({ ofHolder: limits.gatheredKeysBytes, altogether: limits.gatheredKeysBytesInAll });

  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly ports: E2eePorts,
  ) {}

  /**
   * Keys that are kept here, and of the rest what their servers say, which are asked side by side; what a server says about users of
   * others is dropped. One that gave only a part has failed, too, and so has one for whose keys there is no room.
   * @param askerId for whom
   * @param wanted device ids by user, none of whom is of this server; an empty list for all
   */
  async query(
    askerId: string,
    wanted: Iterable<readonly [string, readonly string[]]>,
    timeoutMs: number,
  ): Promise<{ answers: RemoteDeviceKeys[]; failures: RemoteFailures }> {
    const devices = Object.fromEntries(wanted);
    if (Object.keys(devices).length === 0) return { answers: [], failures: {} };
    return this.#holding(askerId, async (own) => {
      const known = await this.ports.remoteKeys.given?.known(devices, own.roomOf(limits.gatheredKeysBytes));
      const missing = Object.entries(devices).filter(([userId]) => !known?.userIds.has(userId));
      const servers = byServer(missing, domainOf);
      const { answers, failures } = await this.#askAll(own, servers, timeoutMs, (source, server, asked, room) =>
        source.query(server, asked, timeoutMs, room),
      );
      const partly = answers.filter(({ answer }) => answer.failure !== undefined);
      for (const { server, answer } of partly) this.#failed(server, answer.failure);
      const told = answers.map(({ server, answer }) => ({
        device_keys: ofServer(answer.device_keys, server),
        master_keys: ofServer(answer.master_keys, server),
        self_signing_keys: ofServer(answer.self_signing_keys, server),
      }));
      return {
        failures: {
          ...Object.fromEntries((known?.leftOut ?? []).map((userId) => [domainOf(userId), tooMuch])),
          ...failures,
          ...Object.fromEntries(partly.map(({ server }) => [server, unreachable])),
        },
        answers: known === undefined ? told : [known, ...told],
      };
    });
  }

  /** The same for one-time keys. */
  async claim(
    askerId: string,
    servers: ReadonlyMap<string, Readonly<Record<string, Readonly<Record<string, string>>>>>,
    timeoutMs: number,
  ): Promise<{ answers: ClaimedKeys[]; failures: RemoteFailures }> {
    return this.#holding(askerId, async (own) => {
      const { answers, failures } = await this.#askAll(own, servers, timeoutMs, (source, server, wanted, room) =>
        source.claim(server, wanted, timeoutMs, room),
      );
      return { failures, answers: answers.map(({ server, answer }) => ofServer(answer, server)) };
    });
  }

  async #holding<T>(askerId: string, work: (own: HeldRemoteKeys) => Promise<T>): Promise<T> {
    const own = new HeldRemoteKeys(this.#held, askerId);
    try {
      return await work(own);
    } finally {
      own.end();
    }
  }

  async #askAll<Question, Answer>(
    own: HeldRemoteKeys,
    servers: ReadonlyMap<string, Question>,
    timeoutMs: number,
    ask: (source: RemoteKeySource, server: string, question: Question, room: KeyRoom) => Promise<Answer>,
  ): Promise<{ answers: { server: string; answer: Answer }[]; failures: RemoteFailures }> {
    const answers: { server: string; answer: Answer }[] = [];
    const failures: Record<string, { status: number; message: string }> = {};
    const source = this.ports.remoteKeys.given;
    if (servers.size === 0) return { answers, failures };
    const over = new AbortController();
    let isLate = false;
    const late = this.clock.sleep(timeoutMs, over.signal).then(() => {
      isLate = true;
      return undefined;
    });
    await eachLimit(servers, parallel, async ([server, question]) => {
      try {
        const room = own.roomOf(limits.serverKeysBytes);
        const answer =
          source === undefined || isLate ? undefined : await Promise.race([ask(source, server, question, room), late]);
        if (answer === undefined) failures[server] = unreachable;
        else answers.push({ server, answer });
      } catch (error) {
        this.#failed(server, error);
        failures[server] = unreachable;
      }
    });
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
