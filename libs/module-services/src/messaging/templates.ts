import { MatrixError } from '@rookery/matrix-types';
import type { ModuleTemplate } from '@rookery/module-api';
import type { Config, Ids, Logger } from '@rookery/platform';
import { Pages, pagesOptionsOf } from '@rookery/templates';
import { isAbsolute } from 'node:path';

const maxTemplates = 100;

/** `api.readTemplates`. @throws MatrixError 404 when a template is nowhere; Error when one is wrong */
export function readTemplates(
  { config, ids, logger }: { readonly config: Config; readonly ids: Ids; readonly logger: Logger },
  filenames: readonly string[],
  folder: string | undefined,
): readonly ModuleTemplate[] {
  if (filenames.length > maxTemplates) throw new RangeError(`At most ${maxTemplates} templates are read at once`);
  if (folder !== undefined && !isAbsolute(folder)) throw new RangeError('The path of a folder has to be absolute');
  const options = pagesOptionsOf(config);
  const folders = folder === undefined ? options.folders : [folder, ...options.folders];
  const pages = new Pages({ ...options, folders }, ids, logger);
  return filenames.map((name) => {
    if (!pages.has(name)) throw MatrixError.notFound(`There is no template ${name}`);
    return Object.freeze({ render: (variables: Readonly<Record<string, unknown>>) => pages.text(name, variables) });
  });
}
