import type { Type } from '@nestjs/common';
import { ConfigError } from '@rookery/module-api';
import { plainToInstance } from 'class-transformer';
import { type ValidationError, validateSync } from 'class-validator';

/**
 * The `config` of a module's entry as a class with class-validator's decorators.
 * @throws ConfigError that names the setting; settings that the class does not have are errors, too
 */
export function settingsOf<Settings extends object>(type: Type<Settings>, raw: unknown): Settings {
  const plain = raw ?? {};
  if (typeof plain !== 'object' || Array.isArray(plain)) throw new ConfigError('expected an object');
  const settings = plainToInstance(type, plain, { exposeDefaultValues: true });
  const options = { whitelist: true, forbidNonWhitelisted: true, forbidUnknownValues: true } as const;
  const [first] = validateSync(settings, options);
  if (first) {
    const { path, message } = deepest(first);
    throw new ConfigError(message, path);
  }
  return settings;
}

function deepest(error: ValidationError): { path: string[]; message: string } {
  const path: string[] = [];
  let at = error;
  for (;;) {
    path.push(at.property);
    const [child] = at.children ?? [];
    if (!child) break;
    at = child;
  }
  return { path, message: Object.values(at.constraints ?? {}).join('; ') || 'is wrong' };
}
