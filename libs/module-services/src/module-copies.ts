import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { type CallOrigin, type CopiesBackend, ModuleHost, type WriterBackend } from '@rookery/module-host';
import { Bus, defineRpc, Rpc, Streams } from '@rookery/replication';

interface Asked {
  readonly module: string;
  readonly question: string;
  readonly payload: unknown;
  readonly origin: CallOrigin;
}

interface Called {
  readonly module: string;
  readonly path: string;
  /** Each in a list of its own: an empty one is `undefined`, which JSON does not know. */
  readonly args: readonly (readonly unknown[])[];
  readonly origin: CallOrigin;
}

/** What came of a call, or a failure that is no MatrixError: those arrive as they are. */
type Outcome = { readonly value?: unknown } | { readonly failed: { readonly name: string; readonly message: string } };

const askCopy = defineRpc<Asked, unknown>('ask_module_copy');
/** May take as long as a join by way of other servers. */
const callForModule = defineRpc<Called, Outcome>('call_for_module', { timeoutMs: 120_000 });

/** Nothing is known of it where a process of an older version asks. */
const unknownOrigin: CallOrigin = { events: 0, questions: 0 };

/** Carries what modules ask their copies in the other processes of the server. */
@Injectable()
export class ModuleCopies implements CopiesBackend {
  /** For the modules of a process that does not write. */
  readonly writer: WriterBackend | undefined;

  constructor(
    private readonly rpc: Rpc,
    private readonly bus: Bus,
    private readonly host: ModuleHost,
    { writers }: Streams,
    { isBesideWriter }: Database,
  ) {
    rpc.handle(askCopy, ({ module, question, payload, origin = unknownOrigin }) =>
      host.answerCopy(module, question, payload, origin),
    );
    rpc.handle(callForModule, (called) => this.#answer(called));
    if (isBesideWriter)
      this.writer = {
        call: (module, path, args, origin) =>
          this.#call({ module, path, args: asJson(args), origin }, writers.writerOf('events')),
      };
  }

  async ask(module: string, question: string, payload: unknown, origin: CallOrigin): Promise<readonly unknown[]> {
    return [...(await this.rpc.callOthers(askCopy, { module, question, payload, origin })).values()];
  }

  async #call(called: Called, writer: string): Promise<unknown> {
    const outcome = await this.rpc.call(callForModule, called, writer);
    // What follows here sees what was changed there.
    await this.bus.heard();
    if ('failed' in outcome) throw errorOf(outcome.failed);
    return outcome.value;
  }

  async #answer({ module, path, args, origin }: Called): Promise<Outcome> {
    try {
      const given = args.map(([arg]) => arg);
      return { value: await this.host.callForCopy(module, path, given, origin) };
    } catch (error) {
      if (MatrixError.is(error)) throw error;
      const { name, message } = error instanceof Error ? error : new Error(String(error));
      return { failed: { name, message } };
    } finally {
      await this.bus.told();
    }
  }
}

/** @throws MatrixError 400 `M_BAD_JSON` for what JSON cannot carry */
function asJson(args: readonly unknown[]): Called['args'] {
  try {
    return JSON.parse(JSON.stringify(args.map((arg) => (arg === undefined ? [] : [arg])))) as Called['args'];
  } catch (error) {
    throw MatrixError.badJson(`What a module gave cannot be written as JSON: ${(error as Error).message}`);
  }
}

function errorOf({ name, message }: { readonly name: string; readonly message: string }): Error {
  const kinds: Readonly<Record<string, ErrorConstructor>> = { RangeError, TypeError };
  const error = new (kinds[name] ?? Error)(message);
  error.name = name;
  return error;
}
