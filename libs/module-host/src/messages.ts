import { AsyncLocalStorage } from 'node:async_hooks';
import { MatrixError } from '@rookery/matrix-types';
import type { ModuleMessages } from '@rookery/module-api';
import type { Clock, Logger } from '@rookery/platform';
import { plainCopy } from './isolation.js';
import type { MessageAnswers } from './message-answers.js';
import { runAs } from './owner.js';
import { readableError } from './watch.js';

/** So many questions may wait for each other: modules that ask in a ring would do so for ever. */
const maxDepth = 10;

/** How many questions wait for the one that is answered now. */
const depth = new AsyncLocalStorage<number>();

/** How many questions wait for what is done now. */
export const questionsWaiting = (): number => depth.getStore() ?? 0;

/** Does what a number of questions wait for, in another process. */
export const withQuestionsWaiting = <T>(count: number, work: () => T): T => depth.run(count, work);

/** Carries questions between modules. */
export class ModuleQuestions {
  /** @param answers those in force */
  constructor(
    private readonly clock: Clock,
    private readonly log: Logger,
    private readonly answers: () => MessageAnswers,
  ) {}

  /** @throws MatrixError as {@link ModuleMessages.ask} says */
  async ask(from: string, to: string, question: string, payload: unknown, known = this.answers()): Promise<unknown> {
    const found = known.get(to)?.get(question);
    if (!found) throw MatrixError.notFound(`There is no module ${to} that answers ${question}`);
    const waiting = questionsWaiting();
    if (waiting >= maxDepth) throw MatrixError.internal('Modules ask each other in a ring');
    // Undefined is nothing that JSON knows.
    const given = plainCopy(payload ?? null);
    let timer = { cancel: (): void => {} };
    const late = new Promise<never>((_, reject) => {
      timer = this.clock.after(found.timeLimitMs, () =>
        reject(MatrixError.gatewayTimeout(`The module ${to} did not answer ${question} in time`)),
      );
    });
    const answering = depth.run(waiting + 1, async () => runAs(found.owner, found.answer, given, from));
    try {
      return plainCopy((await Promise.race([answering, late])) ?? null);
    } catch (error) {
      if (MatrixError.is(error)) throw error;
      this.log.error('A module failed to answer another one', {
        ...{ module: to, question, askedBy: from, err: readableError(error) },
      });
      throw MatrixError.internal(`The module ${to} failed to answer ${question}`);
    } finally {
      timer.cancel();
      answering.catch(() => {});
    }
  }
}

/** What every module answers its copies in other processes: that they are to forget an answer of a cached function. */
export const forgetCached = 'rookery.forget_cached';

/** `api.messages` of one module. @param known while it registers, the answers of modules before it */
export function messagesOf(
  module: string,
  questions: ModuleQuestions,
  askCopies: (question: string, payload: unknown) => Promise<readonly unknown[]>,
  contribute: (question: string, answer: (payload: unknown, from: string) => unknown) => void,
  known: () => MessageAnswers | undefined,
): ModuleMessages {
  return Object.freeze({
    answer: contribute,
    ask: (to: string, question: string, payload?: unknown) => questions.ask(module, to, question, payload, known()),
    askCopies: async (question: string, payload?: unknown) =>
      plainCopy(await askCopies(question, plainCopy(payload ?? null))) as readonly unknown[],
  });
}
