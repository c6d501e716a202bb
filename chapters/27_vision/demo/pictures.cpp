#include "chapters/27_vision/demo/pictures.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/13_training/training_loop.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"

namespace llm {
namespace {

constexpr std::size_t picture_side = 16, picture_patch = 4;

struct PictureBatch {
    Tensor4 pixel_values;  // (B, 1, height, width)
    IdVector labels;       // (B)
};
using DrawPictures = PictureBatch (*)(std::size_t count, std::size_t height, std::size_t width,
                                      Generator& generator);

// Noise alone, without labels.
PictureBatch draw_noise(std::size_t count, std::size_t height, std::size_t width,
                        Generator& generator) {
    return {randn({count, 1, height, width}, generator) * Real(0.2), xt::zeros<Id>({count})};
}

// Whether a pixel at this distance from the center belongs to the line of a shape of 7 x 7
// pixels: 0: a circle, 1: a square, 2: a cross.
bool is_on_shape(Id shape, std::size_t x, std::size_t y) {
    const std::size_t larger = std::max(x, y);
    if (shape == 0) return std::abs(std::hypot(double(x), double(y)) - 3) < 0.5;
    return shape == 1 ? larger == 3 : x == y && larger <= 3;
}

// One of three shapes at a random place.
PictureBatch draw_shapes(std::size_t count, std::size_t height, std::size_t width,
                         Generator& generator) {
    PictureBatch batch = draw_noise(count, height, width, generator);
    batch.labels = randint(0, 3, {count}, generator);
    for (std::size_t b = 0; b < count; ++b) {
        const std::size_t row = 3 + generator.next_32_bits() % (height - 6);
        const std::size_t column = 3 + generator.next_32_bits() % (width - 6);
        for (std::size_t i = row - 3; i <= row + 3; ++i)
            for (std::size_t j = column - 3; j <= column + 3; ++j)
                if (is_on_shape(batch.labels(b), j > column ? j - column : column - j,
                                i > row ? i - row : row - i))
                    batch.pixel_values(b, 0, i, j) += 1;
    }
    return batch;
}

// A bright spot, a quarter as high and as wide as the picture: another size is another
// resolution. The label is the quarter with its center: 0 above left, 1 above right, 2 below
// left, 3 below right.
PictureBatch draw_spots(std::size_t count, std::size_t height, std::size_t width,
                        Generator& generator) {
    PictureBatch batch = draw_noise(count, height, width, generator);
    const std::size_t rows = height / 4, columns = width / 4;
    for (std::size_t b = 0; b < count; ++b) {
        const std::size_t row = generator.next_32_bits() % (height - rows + 1);
        const std::size_t column = generator.next_32_bits() % (width - columns + 1);
        const bool below = 2 * row + rows >= height, right = 2 * column + columns >= width;
        batch.labels(b) = (below ? 2 : 0) + (right ? 1 : 0);
        for (std::size_t i = row; i < row + rows; ++i)
            for (std::size_t j = column; j < column + columns; ++j)
                batch.pixel_values(b, 0, i, j) += 1;
    }
    return batch;
}

// The mean of the patches leaves out the class token, as that of a text leaves out padding.
IdMatrix patch_mask(const Tensor3& states) {  // (B, 1 + N, C) -> (B, 1 + N)
    IdMatrix mask = xt::ones<Id>({states.shape(0), states.shape(1)});
    xt::view(mask, xt::all(), 0) = 0;
    return mask;
}

double forward_backward(const PictureClassifier& model, const PictureBatch& batch,
                        PictureClassifier& gradient) {
    const auto [states, saved] = encoder_forward(model.vit, batch.pixel_values);
    const IdMatrix mask = patch_mask(states);
    const Matrix pooled = pool(model.pooling, states, mask);  // (B, C)
    const Matrix logits = model.classifier(pooled);           // (B, classes)
    const Matrix pooled_gradient =
        linear_backward(model.classifier, pooled, cross_entropy_backward(logits, batch.labels),
                        gradient.classifier);
    encoder_backward(model.vit, saved, pool_backward(model.pooling, mask, pooled_gradient),
                     gradient.vit);
    return cross_entropy(logits, batch.labels);
}

// The control: one linear layer that reads all pixels.
struct PixelClassifier {
    Linear classifier;  // (classes, height * width)

    Matrix pixels(const Tensor4& pixel_values) const {  // (B, 1, h, w) -> (B, h * w)
        return reshape(pixel_values, {pixel_values.shape(0), classifier.weight.shape(1)});
    }
    Matrix operator()(const Tensor4& pixel_values) const {  // -> (B, classes)
        return classifier(pixels(pixel_values));
    }
};

std::vector<Parameter> named_parameters(PixelClassifier& model) {
    ParameterList list;
    add_parameters(list, "classifier", model.classifier);
    return list;
}

double forward_backward(const PixelClassifier& model, const PictureBatch& batch,
                        PixelClassifier& gradient) {
    const Matrix logits = model(batch.pixel_values);
    linear_backward(model.classifier, model.pixels(batch.pixel_values),
                    cross_entropy_backward(logits, batch.labels), gradient.classifier);
    return cross_entropy(logits, batch.labels);
}

PictureClassifier make_picture_classifier(Pooling pooling, std::size_t num_classes,
                                          std::uint32_t seed) {
    VitConfig config;
    config.image_height = config.image_width = picture_side;
    config.patch_size = picture_patch;
    config.num_channels = 1;
    config.hidden_size = 48;
    config.intermediate_size = 96;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    Generator generator(seed);
    VitModel vit = empty_vit(config);
    init_weights(vit, generator);
    return {vit, make_linear(config.hidden_size, num_classes, true, generator), pooling};
}

// Returns the loss of each step.
template <class Classifier>
std::vector<Real> train_classifier(Classifier& model, DrawPictures draw, std::size_t num_steps,
                                   std::uint32_t seed) {
    Generator generator(seed);
    TrainingArguments args;
    args.lr_schedule = {Real(0.005), Real(0.0005), num_steps / 10, num_steps};
    std::size_t step_number = 0;
    std::vector<Real> losses =
        run_training_loop<Classifier>(model, args, [&](Classifier& gradient) {
            show_progress("step " + to_text(++step_number) + " of " + to_text(num_steps));
            return forward_backward(model, draw(32, picture_side, picture_side, generator),
                                    gradient);
        });
    show_progress("");
    return losses;
}

template <class Classifier>
std::string percent_right(const Classifier& model, const PictureBatch& batch) {
    const Matrix logits = model(batch.pixel_values);
    double right = 0;
    for (std::size_t b = 0; b < logits.shape(0); ++b) {
        const Vector row = xt::view(logits, b);
        right += std::max_element(row.begin(), row.end()) - row.begin() == batch.labels(b);
    }
    return fixed(100 * right / double(logits.shape(0)), 0);
}

// Pictures whose patches are stripes of these: what is wrong without transpose.
PictureBatch as_stripes(PictureBatch batch) {
    const Tensor4 given = batch.pixel_values;
    const auto [B, channels, height, width] = dims(given);
    const std::size_t P = picture_patch, pixels = height * width;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const std::size_t patch = i % pixels / (P * P), pixel = i % (P * P);
        batch.pixel_values(i / pixels, 0, patch / (width / P) * P + pixel / P,
                           patch % (width / P) * P + pixel % P) = given.data()[i];
    }
    return batch;
}

// The wrong interpolation: positions as a list from the first to the last, not as a grid.
PictureClassifier with_positions_of_a_list(PictureClassifier model,
                                           const Tensor4& pixel_values) {
    PatchEmbeddings& embeddings = model.vit.embeddings;
    const std::size_t N = embeddings.position_embeddings.shape(0) - 1;
    embeddings.grid = grid_of(pixel_values, picture_patch);
    const std::size_t new_N = embeddings.grid.rows * embeddings.grid.columns;
    embeddings.position_embeddings =
        matmul(position_weights({1, N}, {1, new_N}), embeddings.position_embeddings);
    return model;
}

// The cosines between the positions of the patches, less their mean: (N, N).
Matrix position_cosines(const PatchEmbeddings& embeddings) {
    const Matrix positions =  // (N, C)
        xt::view(embeddings.position_embeddings,
                 xt::range(std::size_t{1}, embeddings.position_embeddings.shape(0)));
    const Vector mean = xt::mean(positions, {0});
    const Matrix units = l2_normalize(positions - reshape(mean, {1, mean.size()}));
    return matmul_transposed(units, units);
}

}  // namespace

std::vector<Parameter> named_parameters(PictureClassifier& model) {
    std::vector<Parameter> list = named_parameters(model.vit);
    add_parameters(list, "classifier", model.classifier);
    return list;
}

Matrix PictureClassifier::operator()(const Tensor4& pixel_values) const {
    const Tensor3 states = vit(pixel_values);
    return classifier(pool(pooling, states, patch_mask(states)));
}

void patches_of_a_picture() {
    step("Patches: the same numbers, cut right and wrong");
    Matrix picture(std::array<std::size_t, 2>{4, 6});  // row 2, column 3: 23
    for (std::size_t i = 0; i < picture.size(); ++i)
        picture.data()[i] = Real(i / 6 * 10 + i % 6);
    show("picture", picture);
    const Tensor4 pixel_values = reshape(picture, {1, 1, 4, 6});
    show("patches", patchify(pixel_values, 2));
    show("stripes", reshape(pixel_values, {1, 6, 4}));
}

void train_on_shapes(std::size_t num_steps, std::uint32_t seed) {
    step("Circle, square or cross? " + to_text(num_steps) + " steps of 32 pictures");
    if (!step_is_printed()) return;  // with --only, no other step needs the models
    PictureClassifier by_class_token = make_picture_classifier(Pooling::cls, 3, seed);
    PictureClassifier by_mean = make_picture_classifier(Pooling::mean, 3, seed);
    Generator generator(seed + 1);
    PixelClassifier by_pixels{make_linear(picture_side * picture_side, 3, true, generator)};
    show("loss", sparkline(train_classifier(by_class_token, draw_shapes, num_steps, seed), 60));
    train_classifier(by_mean, draw_shapes, num_steps, seed);
    train_classifier(by_pixels, draw_shapes, num_steps, seed);
    const PictureBatch held_out = draw_shapes(1000, picture_side, picture_side, generator);
    show_table({"1,000 other pictures", "% right"},
               {{"a linear layer on all pixels", percent_right(by_pixels, held_out)},
                {"ViT, class token", percent_right(by_class_token, held_out)},
                {"ViT, mean of the patches", percent_right(by_mean, held_out)},
                {"wrong: its patches are stripes",
                 percent_right(by_class_token, as_stripes(held_out))}});
}

void spots_in_other_sizes(std::size_t num_steps, std::uint32_t seed) {
    step("In which quarter is the spot? Pictures of other sizes");
    if (!step_is_printed()) return;
    PictureClassifier model = make_picture_classifier(Pooling::cls, 4, seed);
    show("loss", sparkline(train_classifier(model, draw_spots, num_steps, seed), 60));
    Generator generator(seed + 1);
    std::vector<TableRow> rows;
    for (const auto& [height, width] : std::vector<std::pair<std::size_t, std::size_t>>{
             {16, 16}, {16, 32}, {8, 32}, {32, 32}}) {
        const PictureBatch batch = draw_spots(500, height, width, generator);
        rows.push_back(
            {to_text(height) + " x " + to_text(width),
             to_text(height * width / (picture_patch * picture_patch)),
             percent_right(model, batch),
             percent_right(with_positions_of_a_list(model, batch.pixel_values), batch)});
    }
    show_table({"pixels", "patches", "% right", "wrong: a list of positions"}, rows);
    plot("positions", {Heatmap{"Cosines of learned positions",
                               "patch",
                               "patch",
                               position_cosines(model.vit.embeddings),
                               {},
                               {},
                               -1,
                               1}});
}

}  // namespace llm
