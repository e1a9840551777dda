// The outline of a program: which rows are visible, and a list that has elements for these only.

// Rows of a tree of layers. A row is an op (its number), or a node (~node, which is negative).
class OutlineRows {
  constructor(data) {
    this.data = data;
    const { depth } = data.node;
    this.isOpen = new Uint8Array(depth.length);
    // After the last node within a node.
    this.after = new Uint32Array(depth.length);
    const open = [];
    for (let node = 0; node <= depth.length; ++node) {
      while (open.length > 0 && (node === depth.length || depth[open.at(-1)] >= depth[node])) {
        this.after[open.pop()] = node;
      }
      open.push(node);
    }
    this.rows = new Int32Array(0);
  }

  // Opens the nodes of the first levels.
  openLevels(levels) {
    this.data.node.depth.forEach((depth, node) => {
      this.isOpen[node] = depth < levels ? 1 : 0;
    });
    this.build();
  }

  // Opens what holds an op, and returns its row.
  reveal(op) {
    const path = this.pathOf(op);
    if (path.some((node) => !this.isOpen[node])) {
      for (const node of path) this.isOpen[node] = 1;
      this.build();
    }
    return this.rows.indexOf(op);
  }

  // The nodes that hold an op, from the outermost.
  pathOf(op) {
    const { begin, end } = this.data.node;
    const path = [];
    let node = 0;
    let last = this.after.length;
    while (node < last) {
      if (begin[node] <= op && op < end[node]) {
        path.push(node);
        last = this.after[node];
        ++node;
      } else {
        node = this.after[node];
      }
    }
    return path;
  }

  toggle(node) {
    this.isOpen[node] ^= 1;
    this.build();
  }

  build() {
    const { begin, end } = this.data.node;
    const rows = new Int32Array(this.data.numOps + this.after.length);
    let count = 0;
    let op = 0;
    const addOps = (until) => {
      while (op < until) rows[count++] = op++;
    };
    // Of the open nodes around: where they end.
    const ends = [];
    let node = 0;
    while (node < this.after.length) {
      while (ends.length > 0 && begin[node] >= ends.at(-1)) addOps(ends.pop());
      addOps(begin[node]);
      rows[count++] = ~node;
      if (this.isOpen[node]) {
        ends.push(end[node]);
        ++node;
      } else {
        op = end[node];
        node = this.after[node];
      }
    }
    while (ends.length > 0) addOps(ends.pop());
    addOps(this.data.numOps);
    this.rows = rows.slice(0, count);
  }

  depthOf(row) {
    if (row < 0) return this.data.node.depth[~row];
    const path = this.pathOf(row);
    return path.length;
  }
}

// Where a list of rows is scrolled to. Browsers limit the height of an element: beyond it, the bar
// moves by less than the rows.
class ScrollScale {
  static MAX_HEIGHT = 8e6;
  constructor(rowHeight) {
    this.rowHeight = rowHeight;
  }
  resize(count, viewHeight) {
    this.full = count * this.rowHeight;
    this.height = Math.min(this.full, ScrollScale.MAX_HEIGHT);
    const most = Math.max(this.height - viewHeight, 1);
    this.factor = Math.max(this.full - viewHeight, 1) / most;
  }
  // From the position of the bar to that in the rows, and back.
  offsetOf(scrollTop) {
    return this.height < this.full ? scrollTop * this.factor : scrollTop;
  }
  scrollTopOf(offset) {
    return this.height < this.full ? offset / this.factor : offset;
  }
}

// Shows `count` rows of one height in an element that scrolls.
class VirtualList {
  constructor(element, rowHeight, renderRow) {
    this.element = element;
    this.renderRow = renderRow;
    this.scale = new ScrollScale(rowHeight);
    this.space = document.createElement("div");
    this.space.className = "space";
    this.space.setAttribute("role", "none");
    this.window = document.createElement("div");
    this.window.className = "window";
    this.window.setAttribute("role", "none");
    this.space.append(this.window);
    element.append(this.space);
    this.count = 0;
    this.offset = 0;
    element.addEventListener("scroll", () => {
      if (this.ownScrollTop !== element.scrollTop) {
        this.offset = this.scale.offsetOf(element.scrollTop);
      }
      this.ownScrollTop = -1;
      this.draw();
    });
    // Where the bar is scaled, the wheel moves the rows, not the bar.
    element.addEventListener("wheel", (event) => {
      if (this.scale.factor <= 1 || event.ctrlKey) return;
      event.preventDefault();
      this.scrollTo(this.offset + event.deltaY);
    }, { passive: false });
    new ResizeObserver(() => this.setCount(this.count)).observe(element);
  }

  setCount(count) {
    this.count = count;
    this.scale.resize(count, this.element.clientHeight);
    this.space.style.height = `${this.scale.height}px`;
    this.scrollTo(this.offset);
  }

  scrollTo(offset) {
    const most = Math.max(this.scale.full - this.element.clientHeight, 0);
    this.offset = Math.min(Math.max(offset, 0), most);
    this.element.scrollTop = this.scale.scrollTopOf(this.offset);
    this.ownScrollTop = this.element.scrollTop;
    this.draw();
  }

  // Scrolls as little as shows the row; to the middle if it was far away.
  show(index) {
    const { rowHeight } = this.scale;
    const top = index * rowHeight;
    const view = this.element.clientHeight;
    if (top >= this.offset && top + rowHeight <= this.offset + view) return this.draw();
    const isNear = top + view > this.offset && top < this.offset + 2 * view;
    if (!isNear) return this.scrollTo(top - view / 2);
    return this.scrollTo(top < this.offset ? top : top + rowHeight - view);
  }

  get page() {
    return Math.max(1, Math.floor(this.element.clientHeight / this.scale.rowHeight) - 1);
  }

  draw() {
    const { rowHeight } = this.scale;
    const first = Math.floor(this.offset / rowHeight);
    const last = Math.min(this.count, first + Math.ceil(this.element.clientHeight / rowHeight) + 1);
    const top = this.element.scrollTop - (this.offset - first * rowHeight);
    this.window.style.transform = `translateY(${top}px)`;
    const rows = [];
    for (let i = first; i < last; ++i) rows.push(this.renderRow(i));
    this.window.replaceChildren(...rows);
  }
}
