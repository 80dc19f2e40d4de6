import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { BackgroundTasks, Clock, Lifecycle } from '@rookery/platform';
import { deleteAnswersBefore, insertAnswer, selectAnswer } from './staging.query.js';

/** How long answers are remembered, milliseconds; servers give up long before. */
const rememberedMs = 86_400_000;
const cleanUpMs = 3_600_000;

/** What was answered to the transactions of other servers: the same one again gets the same answer. */
@Injectable()
export class TransactionAnswers {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    lifecycle: Lifecycle,
    tasks: BackgroundTasks,
  ) {
    const name = 'forget_transaction_answers';
    const work = (): Promise<void> => deleteAnswersBefore(database, clock.nowMs() - rememberedMs);
    const job = tasks.add({ name, role: 'background', everyMs: cleanUpMs, run: work });
    lifecycle.on('streams', { name, everyProcess: true, start: () => job.start(), stop: () => job.stop() });
  }

  /** The answer to a transaction that came before. */
  async find(origin: string, txnId: string): Promise<JsonObject | undefined> {
    const known = await selectAnswer(this.database, origin, txnId);
    return known === undefined ? undefined : (JSON.parse(known) as JsonObject);
  }

  /** Remembers an answer, together with what it tells of. */
  keep(tx: Tx, origin: string, txnId: string, answer: JsonObject): Promise<void> {
    return insertAnswer(tx, origin, txnId, JSON.stringify(answer), this.clock.nowMs());
  }

  /** Remembers an answer. */
  async store(origin: string, txnId: string, answer: JsonObject): Promise<void> {
    await this.database.write((tx) => this.keep(tx, origin, txnId, answer), { name: 'answer_transaction' });
  }
}
