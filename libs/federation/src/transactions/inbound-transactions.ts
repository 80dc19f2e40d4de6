import { Injectable } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import { type Infer, json } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, KeyedMutex, Metrics, SingleFlight } from '@rookery/platform';
import { type InboundEdu, InboundEdus } from '../edus/inbound-edus.js';
import { PduIntake } from './pdu-intake.js';
import { StagedEvents } from './staged-events.js';
import { TransactionAnswers } from './transaction-answers.js';

/** What a transaction may hold. @spec server-server-api#transactions */
const maxPdus = 50;
const maxEdus = 100;
const maxIdLength = 255;

/** Events and EDUs: each is judged alone, so that one cannot spoil the others. */
export const transactionBody = json.object({
  origin: json.optional('The server that sends; the one that signed the request.', json.string()),
  pdus: json.optional(`Events of rooms, ${maxPdus} at most.`, json.array(json.unknown())),
  edus: json.optional(`What is no event: receipts, typing, devices; ${maxEdus} at most.`, json.array(json.unknown())),
});
type Transaction = Infer<typeof transactionBody>;

/** Transactions of one server that are here at once, the one in hand among them; servers send one at a time. */
const maxWaiting = 5;
/**
 * How often a transaction is refused because of EDUs that must arrive and could not be stored: after that they are given up,
 * so that no EDU can end what a server sends for good. And transactions of which that is remembered.
 */
const maxRefusals = 5;
const maxRefused = 1_000;
/** How long a server waits for its answer at most because rooms are flooded, milliseconds: it could be the room of others. */
const longestWaitMs = 10_000;
/** And how many servers wait so: what they sent is held meanwhile. With more, nobody further waits. */
const maxHeld = 100;

/** Receives transactions: each once, those of one server one after the other. */
@Injectable()
export class InboundTransactions {
  readonly #running = new SingleFlight<JsonObject>();
  /** By server. */
  readonly #turns = new KeyedMutex({ maxWaiting: maxWaiting - 1, refuse: () => MatrixError.limitExceeded(1000) });
  /** How often transactions were refused. */
  readonly #refused = new Map<string, number>();
  readonly #watched: ReadonlySet<string>;
  readonly #lastReceived;
  /** Servers that wait because of flooded rooms. */
  #held = 0;

  constructor(
    private readonly answers: TransactionAnswers,
    private readonly intake: PduIntake,
    private readonly staged: StagedEvents,
    private readonly edus: InboundEdus,
    private readonly clock: Clock,
    config: Config,
    metrics: Metrics,
  ) {
    this.#watched = new Set(config.get('federation_metrics_domains'));
    this.#lastReceived = metrics.gauge('synapse_federation_last_received_pdu_time');
  }

  /**
   * Takes a transaction; the same one again gets the same answer, also after a restart, unless nothing came of it: then it is looked at anew.
   * @param content as it was signed: numbers that are not canonical as `NumberText`
   * @throws MatrixError 400 `M_BAD_JSON` or `M_INVALID_PARAM`, 429 `M_LIMIT_EXCEEDED`, 500 `M_UNKNOWN` when it should be sent
   *   once more
   * @spec server-server-api#put_matrixfederationv1sendtxnid
   */
  receive(origin: string, txnId: string, content: Transaction): Promise<JsonObject> {
    if (txnId === '' || txnId.length > maxIdLength || txnId.includes('\0'))
      throw MatrixError.invalidParam('This cannot be the id of a transaction');
    const key = `${origin}\n${txnId}`;
    return this.#running.run(key, () => {
      const { pdus, edus } = partsOf(origin, content);
      return this.#turns.run(origin, () => this.#answer(origin, txnId, pdus, edus));
    });
  }

  async #answer(
    origin: string,
    txnId: string,
    pdus: readonly unknown[],
    edus: readonly InboundEdu[],
  ): Promise<JsonObject> {
    const known = await this.answers.find(origin, txnId);
    if (known !== undefined) return known;
    const { results, wanted, haveTaken } = await this.intake.check(origin, pdus);
    const nowTs = this.clock.nowMs();
    if (pdus.length > 0 && this.#watched.has(origin)) {
      this.#lastReceived.set({ origin_server_name: origin }, nowTs / 1000);
    }
    const answer: JsonObject = { pdus: Object.fromEntries(results) };
    const keep = (tx: Tx): Promise<void> => this.answers.keep(tx, origin, txnId, answer);
    // What nothing came of would be answered in the same way again, and anybody could have any number of such answers kept.
    if (edus.length === 0) await this.staged.stage(origin, wanted, haveTaken ? keep : undefined);
    else {
      // Events first: they are on their way while EDUs are dealt with.
      await this.staged.stage(origin, wanted);
      const { haveArrived, haveStored } = await this.edus.deliver(origin, edus);
      if (this.#isToComeAgain(`${origin}\n${txnId}`, haveArrived))
        throw MatrixError.internal('Some of the transaction could not be stored');
      if (haveTaken || haveStored || !haveArrived) await this.answers.store(origin, txnId, answer);
    }
    await this.#holdBack(this.staged.floodedOf(wanted.map(({ roomId }) => roomId)));
    return answer;
  }

  /** Whoever floods a room sends more once that is in it: servers wait for each answer. */
  async #holdBack(flooded: readonly string[]): Promise<void> {
    if (flooded.length === 0 || this.#held >= maxHeld) return;
    this.#held++;
    try {
      await this.staged.arrived(flooded, longestWaitMs);
    } finally {
      this.#held--;
    }
  }

  #isToComeAgain(key: string, haveArrived: boolean): boolean {
    const refusals = (this.#refused.get(key) ?? 0) + 1;
    this.#refused.delete(key);
    if (haveArrived || refusals > maxRefusals) return false;
    this.#refused.set(key, refusals);
    for (const oldest of this.#refused.keys()) {
      if (this.#refused.size <= maxRefused) break;
      this.#refused.delete(oldest);
    }
    return true;
  }
}

/** @throws MatrixError 400 `M_BAD_JSON` */
function partsOf(origin: string, content: Transaction): { pdus: readonly unknown[]; edus: readonly InboundEdu[] } {
  const { pdus = [], edus = [] } = content;
  if (content.origin !== undefined && content.origin !== origin)
    throw MatrixError.badJson('The transaction is of another server than the request');
  if (pdus.length > maxPdus) throw MatrixError.badJson(`'pdus' must be a list of at most ${maxPdus} events`);
  if (edus.length > maxEdus) throw MatrixError.badJson(`'edus' must be a list of at most ${maxEdus} entries`);
  return { pdus, edus: edus.flatMap((edu) => eduOf(edu)) };
}

/** What is no EDU is passed over: the others are none the worse for it. */
function eduOf(edu: unknown): InboundEdu[] {
  if (!isJsonObject(edu)) return [];
  const { edu_type: type, content } = edu;
  if (typeof type !== 'string' || type.length > maxIdLength || !isJsonObject(content)) return [];
  // Nothing about an EDU is signed: its handlers see plain numbers.
  return [{ type, content: JSON.parse(JSON.stringify(content)) as JsonObject }];
}
