import { Injectable } from '@nestjs/common';
import { type CopiesBackend, ModuleHost } from '@rookery/module-host';
import { defineRpc, Rpc } from '@rookery/replication';

interface Asked {
  readonly module: string;
  readonly question: string;
  readonly payload: unknown;
}

const askCopy = defineRpc<Asked, unknown>('ask_module_copy');

/** Carries what modules ask their copies in the other processes of the server. */
@Injectable()
export class ModuleCopies implements CopiesBackend {
  constructor(
    private readonly rpc: Rpc,
    host: ModuleHost,
  ) {
    rpc.handle(askCopy, ({ module, question, payload }) => host.answerCopy(module, question, payload));
  }

  async ask(module: string, question: string, payload: unknown): Promise<readonly unknown[]> {
    return [...(await this.rpc.callOthers(askCopy, { module, question, payload })).values()];
  }
}
