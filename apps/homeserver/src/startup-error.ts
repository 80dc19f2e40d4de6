import { DatabaseError } from '@rookery/database';
import { ListenError } from '@rookery/http';
import { ModuleLoadError } from '@rookery/module-host';
import { type Config, SettingsError } from '@rookery/platform';
import { TemplateError } from '@rookery/templates';
import { missingParts } from './optional-parts.js';

/** Why the server cannot start, in one line that says what to change. */
export class StartupError extends Error {
  override readonly name = 'StartupError';
}

/** The lines for an operator about a failed start; `undefined` for an error that is ours and deserves its stack. */
export function startupMessage(error: unknown): string | undefined {
  if (
    error instanceof StartupError ||
    error instanceof SettingsError ||
    error instanceof ListenError ||
    error instanceof TemplateError
  )
    return error.message;
  if (error instanceof DatabaseError || error instanceof ModuleLoadError) {
    const hint = (error as { readonly hint?: string }).hint;
    return hint === undefined ? error.message : `${error.message}\n${hint}`;
  }
  return undefined;
}

/** @throws StartupError when the settings ask for a part that nobody installed */
export function checkParts(config: Config): void {
  const problem = missingParts(config);
  if (problem !== undefined) throw new StartupError(problem);
}
