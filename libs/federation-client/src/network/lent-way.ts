import type { Clock, Logger, Metrics } from '@rookery/platform';
import { defineRpc, type Rpc } from '@rookery/replication';
import { MatrixError } from '@rookery/matrix-types';
import type { Socket } from 'node:net';
import { asDialError, DialError, type DialFailure, NoWayOutError } from './dial-error.js';
import type { SrvRecord } from './name-resolver.js';
import { type Errand, type Route, WayOut } from './way-out.js';

/** A connection that another process is to open. */
interface WantedConnection extends Route {
  readonly errand: Errand;
}

/** Why it did not. */
interface NoConnection {
  readonly reason: DialFailure;
  readonly message: string;
}

/** What DNS says where that process is. */
type Records = { readonly records: readonly SrvRecord[] } | { readonly failure: string };

const connection = defineRpc<WantedConnection, NoConnection>('connection_to_servers');
const records = defineRpc<{ readonly name: string }, Records>('records_of_servers', { timeoutMs: 15_000 });

/** A process that could not be asked is asked after the others for so long, milliseconds. */
const restMs = 5_000;
/** What processes that cannot be reached may cost beside a connection itself, milliseconds. */
const detourMs = 6_000;

/** What {@link lendWay} needs. */
export interface LendingParts {
  readonly rpc: Rpc;
  readonly way: WayOut;
  readonly metrics: Metrics;
}

/**
 * Lets the other processes of the server speak to other servers by way of this one. They get nothing that this process's own requests to
 * other servers would not get.
 * @returns ends that: from then on they ask others. What is open stays open
 */
export function lendWay({ rpc, way, metrics }: LendingParts): () => void {
  let isOver = false;
  const count = metrics.counter({
    name: 'rookery_federation_lent_connections',
    help: 'Connections to other servers that other processes of this server asked for.',
    labels: ['outcome'],
  });
  const checkOpen = (): void => {
    if (isOver) throw MatrixError.unavailable('the process stops');
  };
  rpc.handleOpening(connection, async ({ host, port, errand }, unwanted) => {
    checkOpen();
    const signal = AbortSignal.any([unwanted, AbortSignal.timeout(way.limitMs)]);
    try {
      const socket = await way.connect({ host, port }, errand, signal);
      count.inc({ outcome: 'open' });
      return { connection: socket };
    } catch (error) {
      const { reason, message } = asDialError(error, host);
      count.inc({ outcome: reason });
      return { refusal: { reason, message } };
    }
  });
  rpc.handle(records, async ({ name }) => {
    checkOpen();
    try {
      return { records: await way.srv(name) };
    } catch (error) {
      return { failure: (error as Error).message };
    }
  });
  return () => (isOver = true);
}

/** What a {@link LentWay} needs. */
export interface LentWayParts {
  readonly rpc: Rpc;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The processes that lend theirs, as {@link Rpc} names them. */
  readonly lenders: readonly string[];
}

/**
 * Out of other processes of this server, in turn: names are looked up and connections opened where they are; what is said by them stays
 * between this process and the other server. One that cannot be asked is passed over, since nobody was told anything yet.
 */
export class LentWay extends WayOut {
  readonly limitMs = 10_000 + detourMs;
  /** Processes that could not be asked, and until when they are asked last. */
  readonly #resting = new Map<string, number>();
  #turn = 0;
  #isCutOff = false;

  constructor(private readonly parts: LentWayParts) {
    super();
  }

  async srv(name: string): Promise<readonly SrvRecord[]> {
    const answer = await this.#ask((lender) => this.parts.rpc.call(records, { name }, lender));
    if ('failure' in answer) throw new Error(answer.failure);
    return answer.records;
  }

  async connect({ host, port }: Route, errand: Errand, signal: AbortSignal): Promise<Socket> {
    const wanted = { host, port, errand };
    const opening = await this.#ask((lender) => this.parts.rpc.open(connection, wanted, lender, signal), signal);
    if ('refusal' in opening) throw new DialError(opening.refusal.reason, opening.refusal.message);
    return opening.connection;
  }

  async #ask<Answer>(one: (lender: string) => Promise<Answer>, signal?: AbortSignal): Promise<Answer> {
    for (const lender of this.#inTurn()) {
      try {
        const answer = await one(lender);
        this.#reached(lender);
        return answer;
      } catch (error) {
        signal?.throwIfAborted();
        this.#missed(lender, error);
      }
    }
    const { lenders, logger } = this.parts;
    if (!this.#isCutOff)
      logger.error('No process that speaks to other servers can be reached: requests to them fail until one is back', {
        processes: lenders,
      });
    this.#isCutOff = true;
    throw new NoWayOutError(lenders);
  }

  /** Each once, another first each time, and last those that could not be asked just now. */
  #inTurn(): readonly string[] {
    const { lenders, clock } = this.parts;
    const start = this.#turn++ % Math.max(1, lenders.length);
    const all = [...lenders.slice(start), ...lenders.slice(0, start)];
    const nowMs = clock.monotonicMs();
    const rests = (lender: string): boolean => (this.#resting.get(lender) ?? 0) > nowMs;
    return [...all.filter((lender) => !rests(lender)), ...all.filter(rests)];
  }

  #missed(lender: string, error: unknown): void {
    const { clock, logger } = this.parts;
    if (!this.#resting.has(lender))
      logger.warn('A process that speaks to other servers cannot be reached', {
        ...{ process: lender, reason: (error as Error).message },
      });
    this.#resting.set(lender, clock.monotonicMs() + restMs);
  }

  #reached(lender: string): void {
    this.#isCutOff = false;
    if (this.#resting.delete(lender))
      this.parts.logger.info('A process that speaks to other servers can be reached again', { process: lender });
  }
}
