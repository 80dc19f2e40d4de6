import { Controller, Get } from '@nestjs/common';
import { Access, type InferQuery, param, Query, queryOf, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { clientMediaPath, mediaPaths } from './media-paths.js';
import { Previews } from '../previews/preview.service.js';

const previewQuery = queryOf({
  url: param.string('The link to preview.', { required: true }),
  ts: param.integer('The time of which a preview is preferred, milliseconds.'),
});

/** Previews of links. */
@Controller()
export class PreviewController {
  constructor(private readonly previews: Previews) {}

  /** GET /_matrix/client/v1/media/preview_url */
  @Get([clientMediaPath('/preview_url'), ...mediaPaths('/preview_url')])
  @Access({ auth: 'required' })
  preview(@Who() requester: Requester, @Query(previewQuery) query: InferQuery<typeof previewQuery>): Promise<object> {
    const { url } = query;
    return this.previews.preview(requester, url, query.ts);
  }
}
