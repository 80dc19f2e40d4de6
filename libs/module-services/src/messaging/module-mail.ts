import { Inject, Injectable, Optional } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { ModuleTemplate } from '@rookery/module-api';
import { Config, Ids, Logger } from '@rookery/platform';
import { Mailer } from '@rookery/templates';
import { readTemplates } from './templates.js';

const maxMailBytes = 1_048_576;

/** Mails that modules write, and the templates they write them with. */
@Injectable()
export class ModuleMail {
  constructor(
    private readonly config: Config,
    private readonly ids: Ids,
    private readonly logger: Logger,
    @Optional() @Inject(Mailer) private readonly mailer: Mailer | undefined,
  ) {}

  async sendMail(to: string, subject: string, html: string, text: string): Promise<void> {
    if (!this.mailer) throw MatrixError.internal('This server sends no mail');
    if (Buffer.byteLength(html) + Buffer.byteLength(text) > maxMailBytes) {
      throw MatrixError.tooLarge(`A mail may not be larger than ${maxMailBytes} bytes`);
    }
    await this.mailer.sendWritten({ to, subject, html, text });
  }

  async readTemplates(filenames: readonly string[], folder?: string): Promise<readonly ModuleTemplate[]> {
    const { config, ids, logger } = this;
    return readTemplates({ config, ids, logger }, filenames, folder);
  }
}
