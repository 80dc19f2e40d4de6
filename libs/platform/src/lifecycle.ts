import type { Clock } from './clock.js';
import type { Logger } from './logging/logger.js';

/** The phases of a start, in order. A stop goes through them backwards. */
export const phases = ['config', 'migrate', 'modules', 'streams', 'listen'] as const;
/** One of {@link phases}. */
export type Phase = (typeof phases)[number];

/**
 * How long an answer to a request is still waited for when no more are to be made, milliseconds: where it was taken and nobody knows, it
 * comes once more.
 */
export const lastAnswerMs = 1_000;

/** The part of the time that is left that a step which does not stop leaves to those behind it. */
const partLeft = 0.25;

/** Something that starts and stops with the server. */
export interface LifecycleStep {
  readonly name: string;
  /** In a process beside the one that writes, the phase `streams` has only what is marked so: all else is work of that one. */
  readonly everyProcess?: boolean;
  /** Runs once, after everything registered before it in this phase and in the phases before. A rejection ends the start. */
  start?(): Promise<void> | void;
  /** Runs once when the server stops, if {@link start} had come to its turn. Must be safe after a failed start. */
  stop?(): Promise<void> | void;
}

/**
 * Starts the parts of a server in phases and stops them in reverse, within a time limit. A step that fails to stop, or
 * takes too long, is logged and left behind: the others still get their turn.
 */
export class Lifecycle {
  readonly #steps = new Map<Phase, LifecycleStep[]>(phases.map((phase) => [phase, []]));
  readonly #started: LifecycleStep[] = [];
  readonly #stopping = new AbortController();
  #state: 'new' | 'starting' | 'running' | 'stopping' | 'stopped' = 'new';
  #stopped: Promise<void> | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly isBesideWriter = false,
  ) {}

  /** Aborts when the server begins to stop: background loops end themselves with it. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Whether every phase has started and none is stopping. */
  get running(): boolean {
    return this.#state === 'running';
  }

  /**
   * Adds a step. Within a phase steps start in the order of registration.
   * @throws Error when the phase has already begun
   */
  on(phase: Phase, step: LifecycleStep): void {
    const steps = this.#steps.get(phase);
    if (!steps) throw new Error(`${step.name} was registered too late: phase ${phase} has begun`);
    if (this.isBesideWriter && phase === 'streams' && !step.everyProcess) return;
    steps.push(step);
  }

  /**
   * Starts everything. When a step rejects, what has started is stopped again, and the rejection is passed on.
   * @param stopLimitMs for stopping after a failure
   */
  async start(stopLimitMs = 5000): Promise<void> {
    if (this.#state !== 'new') throw new Error('A server starts once');
    this.#state = 'starting';
    try {
      for (const phase of phases) {
        const steps = this.#steps.get(phase) ?? [];
        this.#steps.delete(phase);
        for (const step of steps) {
          if (this.#stopping.signal.aborted) return;
          this.#started.push(step);
          await step.start?.();
        }
      }
      if (this.#state === 'starting') this.#state = 'running';
    } catch (error) {
      await this.stop(stopLimitMs);
      throw error;
    }
  }

  /**
   * Stops everything that has started, newest first. Never rejects; a second call waits for the first.
   * @param limitMs for all steps together. One that takes too long leaves a part of it to those behind it, which are all asked to stop
   */
  stop(limitMs = 5000): Promise<void> {
    this.#stopped ??= this.#stop(limitMs);
    return this.#stopped;
  }

  async #stop(limitMs: number): Promise<void> {
    this.#state = 'stopping';
    this.#stopping.abort();
    const deadline = this.clock.monotonicMs() + limitMs;
    const steps = this.#started.splice(0).reverse();
    for (const step of steps) {
      const part = step === steps.at(-1) ? 1 : 1 - partLeft;
      const left = Math.max(0, deadline - this.clock.monotonicMs()) * part;
      const late = new AbortController();
      const outcome = await Promise.race([
        this.#stopStep(step),
        this.clock.sleep(left, late.signal).then(() => 'late' as const),
      ]);
      late.abort();
      if (outcome === 'late') this.logger.warn('Not stopped in time', { step: step.name, limit_ms: limitMs });
    }
    this.#state = 'stopped';
  }

  async #stopStep(step: LifecycleStep): Promise<'done'> {
    try {
      await step.stop?.();
    } catch (err) {
      this.logger.error('Failed to stop', { step: step.name, err });
    }
    return 'done';
  }
}
