import { ModuleLoadError } from './errors.js';
import type { Owner } from './owner.js';

const maxQuestions = 1_000;
const usualLimitMs = 5_000;

/** How one module answers one question. */
export interface MessageAnswer {
  readonly owner: Owner;
  readonly timeLimitMs: number;
  readonly answer: (payload: unknown, from: string) => unknown;
}

/** What modules answer each other, by module and question. */
export type MessageAnswers = ReadonlyMap<string, ReadonlyMap<string, MessageAnswer>>;

/** Collects the answers of modules while they register. */
export class MessageAnswerList {
  readonly answers = new Map<string, Map<string, MessageAnswer>>();

  /** @throws ModuleLoadError for what is no question, one that is taken, or too many */
  add(module: string, question: unknown, answer: Partial<MessageAnswer> & { readonly owner: Owner }): void {
    const own = this.answers.get(module) ?? new Map<string, MessageAnswer>();
    const wrong = (what: string): ModuleLoadError => new ModuleLoadError(module, `messages.answer: ${what}`);
    if (typeof question !== 'string' || !/^[\w.-]{1,100}$/.test(question)) throw wrong('a question has a name');
    if (typeof answer.answer !== 'function') throw wrong(`the answer to ${question} is no function`);
    if (own.has(question)) throw wrong(`${question} is answered already`);
    if (own.size >= maxQuestions) throw wrong(`a module answers at most ${maxQuestions} questions`);
    own.set(question, { owner: answer.owner, answer: answer.answer, timeLimitMs: answer.timeLimitMs ?? usualLimitMs });
    this.answers.set(module, own);
  }
}
